"""A folder to train in, and the undisturbed run that others are held against."""

import pytest

from train.runs.ranks import Ran, Setting, fresh


@pytest.fixture(scope="session")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="session")
def undisturbed(setting: Setting) -> Ran:
    """Eight steps on two devices, without anything that happens to it."""
    ran = setting.run("checkpoint.keep=9", name=fresh("undisturbed"))
    assert ran.codes == (0, 0), ran.said
    return ran
