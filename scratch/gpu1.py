import json, sys, time, traceback, torch
t0=time.time()
def say(*a): print(f"[{time.time()-t0:.0f}s]",*a,flush=True)
say(torch.__version__, torch.cuda.get_device_name(), torch.backends.cudnn.version())
from penstock.measure.gpu_attention import attention_times
from penstock.measure.gpu import Case, alone, together
from penstock.plan.slices import equal_flops_of_model
from penstock.cost.architecture import model
for h,kv,d,T in ((32,32,128,32768),(32,8,64,32768),(32,8,64,65536)):
    try: say(json.dumps(attention_times(h,kv,d,(T//4,)*4)))
    except Exception: traceback.print_exc()
for tokens in (32768,65536):
    for k in (1,4):
        try: say(json.dumps(alone(Case("llama3.2-1b",tokens,"1f1b" if k==1 else "seq1f1b",1,1,k),4)))
        except Exception: traceback.print_exc()
        torch.cuda.empty_cache()
for name,k in (("1f1b",1),("seq1f1b",4)):
    try: say(json.dumps(together(Case("llama3.2-1b",16384,name,4,4,k),1)))
    except Exception: traceback.print_exc()
