import json, sys, time, torch
from torch.profiler import profile, ProfilerActivity
from penstock.measure.gpu import Case, random_batch
from penstock.run.build import build_engine
from penstock.run.optimizer import AdamW
from penstock.run.state import begin
dev=torch.device("cuda",0)
for tokens,k in ((32768,1),(32768,4)):
    case=Case("llama3.2-1b",tokens,"1f1b" if k==1 else "seq1f1b",1,1,k)
    e,_=build_engine(case.plan(),1,AdamW(),dev); begin(e,0); b=random_batch(case)
    print(case.plan().lengths)
    for _ in range(2): e.step(b,1e-4)
    torch.cuda.synchronize(); t=time.time()
    e.gradients(b); torch.cuda.synchronize(); t1=time.time(); print("gradients",t1-t)
    e.step(b,1e-4); torch.cuda.synchronize(); print("step",time.time()-t1)
    s,en=e.executor.spans.nanoseconds(); 
    print([(str(st.op),round((y-x)/1e6,1)) for st,x,y in zip(e.executor.lane.steps,s,en)])
    with profile(activities=[ProfilerActivity.CUDA,ProfilerActivity.CPU]) as p:
        e.step(b,1e-4); torch.cuda.synchronize()
    print(p.key_averages().table(sort_by="self_cuda_time_total",row_limit=28,max_name_column_width=70))
    del e; torch.cuda.empty_cache()
