"""edgellm upgrade on a device: the new release serves, or the one of before does, and nothing in between."""

from __future__ import annotations

import threading

import pytest
from tests.lab.small_disk import small_disk
from tests.lab.wheels import dependency_wheels
from tests.service.appliance import PREWARM, READY_SECONDS, UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say
from tests.service.release_wheels import FOLDER, NOVEL_SETTING, NOVEL_VARIABLE, ReleaseWheels
from tests.service.upgrading import COMMAND, Upgraded, releases_of, serving_version, upgrade, upgrading

STEPS = ["staged", "drained", "switched", "ready", "smoke", "kept"]
CONFIGURATION = "/etc/edgellm/edgellm.toml"
RECORD = "/usr/local/lib/edgellm/installed.json"
ENVIRONMENTS = "/opt/edgellm-releases"


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance, releases: ReleaseWheels) -> Appliance:
    return make_appliance("upgrade", more={FOLDER: releases.folder}).serve()


def done_steps(outcome: Upgraded) -> list[str]:
    return [step for step, state in outcome.steps if state == "done"]


def test_a_good_release_takes_over_and_a_running_answer_is_finished(
    appliance: Appliance, releases: ReleaseWheels, say: Say
) -> None:
    source = releases.good("0.2.0")
    appliance.device.run("systemctl", "disable", PREWARM)
    outcomes: list[Upgraded] = []
    upgrading_thread = threading.Thread(target=lambda: outcomes.append(upgrade(appliance, source)))
    with appliance.stream(max_tokens=600) as events:
        upgrading_thread.start()
        chunks = list(events)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    upgrading_thread.join()
    (outcome,) = outcomes
    assert outcome.code == 0, outcome.output
    assert done_steps(outcome) == STEPS
    assert outcome.report["result"] == "upgraded"
    assert outcome.report["from"].startswith("0.1.0-")
    assert outcome.report["serving"] == outcome.report["to"]
    assert outcome.report["requests_cut_short"] is False
    (smoke,) = outcome.report["smoke"]
    assert (smoke["version"], smoke["model"]) == ("0.2.0", "smollm2-135m-instruct")
    assert serving_version(appliance) == "0.2.0"
    assert appliance.chat().status_code == 200
    enabled = appliance.device.run("systemctl", "is-enabled", PREWARM, check=False).output
    assert enabled == "disabled\n", "what an administrator disabled stays so"
    appliance.device.run("systemctl", "enable", PREWARM)
    say(
        f"upgrade: {', '.join(f'{step} {seconds:.1f} s' for step, seconds in outcome.seconds.items())}; "
        f"down {outcome.report['downtime_seconds']:.1f} s, the drain of a running answer included"
    )


def test_the_release_that_serves_already_changes_nothing(appliance: Appliance, releases: ReleaseWheels) -> None:
    pid = appliance.pid()
    outcome = upgrade(appliance, releases.good("0.2.0"))
    assert (outcome.code, outcome.report["result"], outcome.steps) == (0, "unchanged", [])
    assert appliance.pid() == pid


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("does-not-run", "staged"),
        ("ends-at-its-start", "ready"),
        pytest.param("prepares-nothing", "staged", marks=pytest.mark.thorough),
        pytest.param("crashes-at-its-start", "ready", marks=pytest.mark.thorough),
        pytest.param("is-never-ready", "ready", marks=pytest.mark.thorough),
        pytest.param("answers-nothing", "smoke", marks=pytest.mark.thorough),
    ],
)
def test_after_a_broken_release_the_one_of_before_answers(
    appliance: Appliance, releases: ReleaseWheels, how: str, step: str, say: Say
) -> None:
    before, pid = serving_version(appliance), appliance.pid()
    appliance.configure("# as it was before\n")
    outcome = upgrade(appliance, releases.broken(how), "--ready-timeout", "20")
    assert outcome.code == 76, outcome.output
    report = outcome.report
    assert (report["result"], report["step"], report["exit_code"]) == ("returned", step, 76)
    assert report["serving"] == report["from"]
    assert report["reason"]
    assert serving_version(appliance) == before
    assert (appliance.pid() == pid) == (step == "staged"), "a release that fails early costs no restart"
    assert appliance.chat().status_code == 200
    assert "as it was before" in appliance.device.read("/etc/edgellm/edgellm.toml")
    listed = releases_of(appliance)
    assert listed["last"]["reason"] == report["reason"]
    assert listed["under_way"] is None
    assert "0.9.9" not in appliance.device.run("ls", ENVIRONMENTS).output
    if step != "staged":
        assert report["journal"] or how == "is-never-ready"
        say(f"{how}: down {report['downtime_seconds']:.1f} s")


def test_a_masked_unit_is_said_with_the_way_out(appliance: Appliance, releases: ReleaseWheels) -> None:
    serving, pid = serving_version(appliance), appliance.pid()
    appliance.device.run("systemctl", "mask", PREWARM)
    outcome = upgrade(appliance, releases.good("0.2.5"))
    appliance.device.run("systemctl", "unmask", PREWARM)
    assert (outcome.code, outcome.report["step"]) == (76, "staged"), outcome.output
    assert outcome.report["reason"].startswith(f"{PREWARM} is masked, so that nothing starts it — systemctl unmask ")
    assert (serving_version(appliance), appliance.pid()) == (serving, pid)


def test_a_rollback_brings_the_release_back_and_leaves_later_edits_alone(appliance: Appliance) -> None:
    appliance.configure("# of the later release\n")
    appliance.drop_in("later", "[Service]\nNice=3\n")
    outcome = upgrade(appliance, "--rollback")
    assert outcome.code == 0, outcome.output
    assert (outcome.report["result"], outcome.report["edits_folder"]) == ("rolled_back", None)
    assert serving_version(appliance) == "0.1.0"
    assert "of the later release" in appliance.device.read(CONFIGURATION)
    assert appliance.device.unit(UNIT, "Nice")["Nice"] == "3"
    again = upgrade(appliance, "--rollback", "0.2.0")
    assert again.code == 0, again.output
    assert serving_version(appliance) == "0.2.0"
    assert "of the later release" in appliance.device.read(CONFIGURATION)
    appliance.device.run("rm", f"/etc/systemd/system/{UNIT}.d/later.conf")
    absent = upgrade(appliance, "--rollback", "0.1.5")
    assert absent.code == 66
    assert "no release 0.1.5 is kept on this machine — kept are: 0.1.0-" in absent.output


@pytest.mark.parametrize("where", ["file", pytest.param("drop-in", marks=pytest.mark.thorough)])
def test_a_rollback_saves_edits_that_the_earlier_release_does_not_take(
    appliance: Appliance, releases: ReleaseWheels, where: str
) -> None:
    before = appliance.device.read(CONFIGURATION)
    assert upgrade(appliance, releases.with_novel_setting("0.2.4")).code == 0
    drop_in = f"/etc/systemd/system/{UNIT}.d/novel.conf"
    if where == "file":
        appliance.configure(f"{NOVEL_SETTING}\n")
    else:
        appliance.drop_in("novel", f"[Service]\nEnvironment={NOVEL_VARIABLE}=1\n")
    outcome = upgrade(appliance, "--rollback", "0.2.0")
    assert outcome.code == 0, outcome.output
    assert (outcome.report["result"], serving_version(appliance)) == ("rolled_back", "0.2.0")
    assert "novelty" in outcome.report["refusal_of_edits"].lower()
    assert appliance.device.read(CONFIGURATION) == before
    assert appliance.device.run("test", "-e", drop_in, check=False).code == 1
    edited = CONFIGURATION if where == "file" else drop_in
    assert "novelty" in appliance.device.read(f"{outcome.report['edits_folder']}{edited}").lower()
    assert outcome.report["edits_folder"] in appliance.device.run(COMMAND, "upgrade", "--list").output
    again = upgrade(appliance, "--rollback", "0.2.4")
    assert again.code == 0, again.output
    assert "novelty" in appliance.device.read(edited).lower()
    assert upgrade(appliance, "--rollback", "0.2.0").code == 0
    assert appliance.device.read(CONFIGURATION) == before


@pytest.mark.thorough
def test_a_configuration_that_comes_with_a_release_goes_with_it(appliance: Appliance, releases: ReleaseWheels) -> None:
    before = appliance.device.read(CONFIGURATION)
    appliance.device.write("/root/coming.toml", f"{before}\n# coming\n{NOVEL_SETTING}\n", 0o600)
    outcome = upgrade(appliance, releases.with_novel_setting("0.2.4"), "--config", "/root/coming.toml")
    assert outcome.code == 0, outcome.output
    assert "# coming" in appliance.device.read(CONFIGURATION)
    back = upgrade(appliance, "--rollback", "0.2.0")
    assert (back.code, back.report["edits_folder"]) == (0, None), back.output
    assert appliance.device.read(CONFIGURATION) == before
    refused = upgrade(appliance, releases.good("0.2.5"), "--config", "/root/coming.toml")
    assert refused.code == 76
    assert "refuses the configuration: " in refused.report["reason"]
    assert "/root/coming.toml: unknown key server.novelty" in refused.report["reason"]
    assert appliance.device.run("ls", "-A", "/etc/edgellm").output.count("coming") == 0


@pytest.mark.thorough
def test_a_folder_of_wheels_is_installed_without_a_network_and_old_releases_go(
    appliance: Appliance, releases: ReleaseWheels, say: Say
) -> None:
    engines = appliance.device.run("ls", "/var/lib/edgellm/engines").output.split()
    outcome = upgrade(appliance, releases.with_dependencies("0.3.0", dependency_wheels()), "--keep", "1")
    assert outcome.code == 0, outcome.output
    say(f"staging with all dependencies: {outcome.seconds['staged']:.1f} s")
    listed = releases_of(appliance)
    assert listed["current"]["version"] == "0.3.0"
    assert [one["version"] for one in listed["kept"]] == ["0.2.0"]
    assert len(appliance.device.run("ls", ENVIRONMENTS).output.split()) == 2
    assert set(engines) <= set(appliance.device.run("ls", "/var/lib/edgellm/engines").output.split())
    assert appliance.chat().status_code == 200


def test_an_uninstall_during_an_upgrade_is_refused(appliance: Appliance, releases: ReleaseWheels) -> None:
    installed = appliance.device.read(RECORD)
    with upgrading(appliance, releases.good("0.3.5")) as first:
        assert first.stdout is not None
        assert '"begun"' in first.stdout.readline()
        refused = appliance.device.run(COMMAND, "uninstall", check=False)
        assert refused.code == 75
        assert "another upgrade runs on this machine (pid " in refused.output
        assert appliance.device.read(RECORD) == installed
        first.stdout.read()
        assert first.wait() == 0
    assert serving_version(appliance) == "0.3.5"
    assert appliance.chat().status_code == 200


def test_a_second_upgrade_at_the_same_time_is_refused(appliance: Appliance, releases: ReleaseWheels) -> None:
    with upgrading(appliance, releases.good("0.4.0")) as first:
        assert first.stdout is not None
        assert '"begun"' in first.stdout.readline()
        second = upgrade(appliance, releases.good("0.5.0"))
        assert second.code == 75
        assert "another upgrade runs on this machine (pid " in second.output
        first.stdout.read()
        assert first.wait() == 0
    assert serving_version(appliance) == "0.4.0"


def test_a_full_disk_is_refused_with_numbers(appliance: Appliance, releases: ReleaseWheels) -> None:
    assert upgrade(appliance, releases.good("0.4.0")).code == 0  # it may be there already
    pid = appliance.pid()
    with small_disk(appliance.device, ENVIRONMENTS, "64m"):
        refused = upgrade(appliance, releases.good("0.6.0"))
    assert refused.code == 73, refused.output
    assert f"{ENVIRONMENTS}: the release needs up to " in refused.output
    assert (refused.steps, appliance.pid()) == ([], pid)
    assert appliance.chat().status_code == 200


def test_versions_below_the_floor_are_refused_by_name(appliance: Appliance, releases: ReleaseWheels) -> None:
    appliance.device.run("/usr/local/bin/edgellm", "upgrade", "--raise-floor", "0.4.0")
    pid = appliance.pid()
    for arguments in ([releases.good("0.2.0")], ["--rollback"]):
        refused = upgrade(appliance, *arguments)
        assert refused.code == 77, refused.output
        assert "older than 0.4.0, the oldest version that this machine may run" in refused.output
    appliance.device.run("/usr/local/bin/edgellm", "upgrade", "--raise-floor", "0.1.0")
    typo = appliance.device.run("/usr/local/bin/edgellm", "upgrade", "--raise-floor", "99", check=False)
    assert typo.code == 64
    assert "99 is above 0." in typo.output
    assert releases_of(appliance)["version_floor"] == "0.4.0"
    assert appliance.pid() == pid


def test_a_service_that_was_stopped_is_upgraded_too(appliance: Appliance, releases: ReleaseWheels) -> None:
    appliance.device.run("systemctl", "stop", UNIT)
    failed = upgrade(appliance, releases.broken("does-not-run"))
    assert (failed.code, failed.report["result"], failed.report["serving"]) == (76, "returned", None)
    assert failed.output.rstrip().endswith("— nothing serves: see systemctl status edgellm")
    outcome = upgrade(appliance, releases.good("0.6.0"))
    assert outcome.code == 0, outcome.output
    appliance.device.wait_for(appliance.is_active, "a server", READY_SECONDS)
    assert serving_version(appliance) == "0.6.0"
