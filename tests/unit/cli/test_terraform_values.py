"""``slipway new --from``: variables of terraform-aws-github-runner become a stack; what it cannot take is named."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import change
from cli.keys import new_stack
from cli.keys.terraform_text import Expression, read_hcl
from cli.keys.terraform_values import terraform_values
from cli.main import main
from containers.errors import SlipwayError
from stacks import checks, flavors, graph
from stacks.checks import ec2_site
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.stack_file import stack_file
from tests.helpers.every import every

# As upstream's examples/default, ephemeral and multi-runner have it, shorter.
DEFAULT = """
# Long-lived runners of an organization.
module "base" {
  source = "../base"
  zones  = [for zone in ["a", "b"] : "eu-west-1${zone}"]
}

module "runners" {
  source     = "github-aws-runners/github-runner/aws"
  version    = "7.11.0"
  depends_on = [module.base]

  aws_region = "eu-west-1"
  vpc_id     = module.base.vpc.vpc_id
  subnet_ids = module.base.vpc.private_subnets
  prefix     = local.environment
  tags       = { Project = "ProjectX" }
  github_app = {
    key_base64     = "hunter2"
    id             = "1"
    webhook_secret = random_id.random.hex
  }
  enable_organization_runners = true
  runner_extra_labels         = ["default", "Example"]
  idle_config = [{
    cron      = "* * 9-17 * * 1-5"
    timeZone  = "Europe/Amsterdam"
    idleCount = 3 # more than there may be
  }]
  block_device_mappings           = [{ device_name = "/dev/sda1", volume_size = 120, volume_type = "gp3", iops = 9000 }]
  minimum_running_time_in_minutes = 5
  instance_types                  = ["m7a.large", "m5.large"]
  runners_maximum_count           = 2
  enable_ssm_on_runners           = true
}

module "webhook_github_app" {
  source     = "github-aws-runners/github-runner/aws//modules/webhook-github-app"
  github_app = { key_base64 = "hunter2" }
}
"""
EPHEMERAL = """
module "runners" {
  source                        = "philips-labs/github-runner/aws"
  aws_region                    = local.aws_region
  runner_os                     = "linux"
  runner_architecture           = "arm64"
  runner_extra_labels           = concat(["a"], var.labels)
  instance_types                = ["c6g.large", var.second]
  instance_target_capacity_type = "on-demand"
  runner_group_name             = "Default"
  enable_ephemeral_runners      = true
  runners_maximum_count         = -1
  pool_runner_owner             = "acme"
  ghes_url                      = "https://github.acme.example/"
  role_permissions_boundary     = "arn:aws:iam::123456789012:policy/limits"
  logging_retention_in_days     = 14
  minimum_running_time_in_minutes = 0
  block_device_mappings         = [{ volume_size = 30 }]
  pool_config = [{
    size                         = 6
    schedule_expression          = "cron(0/3 8-17 ? * 2-4,FRI *)"
    schedule_expression_timezone = "Europe/Amsterdam"
    }, {
    size                = 1
    schedule_expression = "cron(0 8 * * ? *)"
  }]
  job_retry             = { enable = true }
  userdata_post_install = <<-EOT
    curl https://user:hunter2@acme.example/
  EOT
}
"""
MULTI = """
module "runners" {
  source = "git::https://github.com/github-aws-runners/terraform-aws-github-runner.git//modules/multi-runner?ref=v7.11.0"
  multi_runner_config = {
    "linux_x64" = {
      matcherConfig : {
        labelMatchers = [["self-hosted", "linux", "x64", "ubuntu-latest"], ["self-hosted", "linux", "x64", "amazon"]]
        exactMatch    = true
      }
      fifo = true
      runner_config = {
        runner_os             = "linux"
        runner_architecture   = "x64"
        runner_extra_labels   = ["Amazon"]
        runner_name_prefix    = "amazon-x64_"
        instance_types        = ["m5ad.large", "m5a.large"]
        runners_maximum_count = 1
        subnet_ids            = ["subnet-0123456789abcdef1"]
      }
    }
    linux-arm64 = {
      matcherConfig = { labelMatchers = [["self-hosted", "linux", "arm64", "amazon"]] }
      runner_config = {
        runner_os             = "linux"
        runner_architecture   = "arm64"
        instance_types        = ["t4g.large"]
        runners_maximum_count = 1
      }
    }
    win       = { runner_config = { runner_os = "windows", instance_types = ["m5.large"] } }
    "a.b"     = { runner_config = { instance_types = ["m5.large"] } }
    linux     = { runner_config = { instance_types = ["m5.large"] } }
    linux-x64 = { runner_config = { instance_types = ["m5.large"] } }
    either    = { runner_config = { instance_types = ["m5.large"], runner_architecture = var.architecture } }
    from-yaml = merge(local.base, { priority = 1 })
  }
  aws_region = "eu-west-1"
  vpc_id     = "vpc-0123456789abcdef0"
  subnet_ids = ["subnet-0123456789abcdef0"]
  github_app = var.github_app
}
"""

NAMES = """
additional_github_apps ami ami_housekeeper_cleanup_config associate_public_ipv4_address aws_dynamic_labels_policy
aws_partition cloudwatch_config cpu_options create_service_linked_role_spot credit_specification delay_webhook_event
disable_runner_autoupdate ebs_optimized enable_ami_housekeeper enable_cloudwatch_agent enable_dynamic_labels
enable_jit_config enable_job_queued_check enable_managed_runner_security_group enable_on_demand_failover_for_errors
enable_runner_binaries_syncer enable_runner_bidirectional_label_match enable_runner_detailed_monitoring
enable_runner_on_demand_failover_for_errors enable_runner_workflow_job_labels_check_all enable_userdata
enable_user_data_debug_logging_runner eventbridge ghes_ssl_verify iam_overrides instance_allocation_strategy
instance_max_spot_price instance_profile_path instance_termination_watcher instance_type_priorities
job_queue_retention_in_seconds key_name kms_key_arn lambda_architecture lambda_event_source_mapping_batch_size
lambda_principals lambda_runtime lambda_s3_bucket lambda_security_group_ids lambda_subnet_ids lambda_tags
license_specifications log_class logging_kms_key_id log_level matcher_config_parameter_store_tier metrics
parameter_store_tags placement pool_include_busy_runners pool_lambda_timeout queue_encryption queue_selection_strategy
redrive_build_queue repository_white_list role_path runner_additional_security_group_ids runner_as_root
runner_binaries_s3_versioning runner_binaries_syncer_memory_size runner_cpu_options runner_credit_specification
runner_disable_default_labels runner_ec2_tags runner_egress_rules runner_hook_job_completed runner_hook_job_started
runner_iam_role_managed_policy_arns runner_license_specifications runner_log_files runner_metadata_options
runner_placement runner_run_as runners_ebs_optimized runners_lambda_zip runners_scale_up_lambda_timeout
runners_ssm_housekeeper scale_down_lambda_memory_size scale_down_schedule_expression scale_errors
scale_up_reserved_concurrent_executions ssm_paths state_event_rule_binaries_syncer syncer_lambda_s3_key tracing_config
use_dedicated_host userdata_content userdata_pre_install userdata_template user_agent webhook_lambda_zip
"""
"""Variables of the module that no key takes, of each kind (4475534a9, variables*.tf of it and of multi-runner)."""


def written(folder: Path, text: str, name: str = "main.tf") -> Path:
    (folder / name).write_text(text)
    return folder / name


def translated(path: Path, *words: str) -> tuple[Ec2RunnersConfig, str, list[str]]:
    """Return the runners, the text of their stack, and the lines; the stack is valid but for what is to be filled in."""
    given = new_stack.assigned(words)
    values, lines = terraform_values(path, given)
    values = new_stack.merged(values, given)
    text = new_stack.text("mine", values)
    config = flavors.load(values, "stack mine").runners
    assert isinstance(config, Ec2RunnersConfig)
    assert "hunter2" not in text + str(lines)
    return config, text, lines


def keys(lines: list[str], start: str) -> list[str]:
    return [line.split(": ")[1] for line in lines if line.startswith(start)]


def test_runners_of_an_organization_are_taken(tmp_path: Path) -> None:
    config, _, lines = translated(written(tmp_path, DEFAULT))
    assert (config.labels, config.instance_types) == (("default", "Example"), ("m7a.large", "m5.large"))
    assert (config.region, config.max_runners, config.idle, config.root) == ("eu-west-1", 2, 5, 120)
    (row,) = config.schedule
    assert (row.min_runners, row.start, row.end, row.time_zone) == (2, "09:00", "18:00", "Europe/Amsterdam")
    assert row.days == ("mon", "tue", "wed", "thu", "fri")
    assert config.listens
    assert keys(lines, "fill in") == [
        f"runners.{key}" for key in ("account", "github.secret", "github.url", "vpc", "subnets")
    ]
    assert "fill in: runners.vpc: vpc_id is module.base.vpc.vpc_id" in lines
    taken = [
        "prefix",
        "tags",
        "github_app",
        "enable_ssm_on_runners",
        "block_device_mappings.iops",
        "self-hosted, linux, x64, arm64",
    ]
    assert keys(lines, "not taken") == taken


def test_what_is_given_is_not_to_be_filled_in(tmp_path: Path) -> None:
    """The secret's place follows the account that is given."""
    words = ("runners.account=123456789012", "runners.github.url=https://github.com/acme", "runners.subnets=[subnet-0123456789abcdef0]", "runners.vpc=vpc-0123456789abcdef0")  # fmt: skip
    config, _, lines = translated(written(tmp_path, DEFAULT), *words)
    assert keys(lines, "fill in") == ["runners.github.secret"]
    assert config.github.secret == "arn:aws:secretsmanager:eu-west-1:123456789012:secret:slipway/github-FillIn"


def test_each_placeholder_is_refused_by_its_key(tmp_path: Path) -> None:
    """The set's name too. What the file says is not."""
    text = MULTI[: MULTI.index('{\n    "linux')] + "local.all\n github_app = var.app\n}"
    for written_text, more in ((DEFAULT, {"vpc", "subnets"}), (text, {"region", "sets", "sets.fill-in.instanceTypes"})):
        values, _ = terraform_values(written(tmp_path, written_text), {})
        refused = list(ec2_site.unfilled(graph.unlocked(values, "stack mine")))
        unknown = {"account", "github.url", "github.secret"} | more
        assert {line.partition(": ")[0] for line in refused} == {f"slipway:runners.{key}" for key in unknown}
    assert ec2_site.unfilled in checks.BUILD_RULES


def test_account_of_localstack_is_no_placeholder(tmp_path: Path) -> None:
    values, _ = terraform_values(written(tmp_path, DEFAULT), {})
    secret = "arn:aws:secretsmanager:eu-west-1:000000000000:secret:slipway/github-a1b2c3"
    values["runners"] |= {"account": "000000000000", "github": {"url": "https://github.com/acme", "secret": secret}}
    refused = [*ec2_site.unfilled(graph.unlocked(values, "stack mine"))]
    assert refused
    assert not [line for line in refused if "000000000000" in line]


def test_runners_of_one_job_with_a_pool_are_taken(tmp_path: Path) -> None:
    config, text, lines = translated(written(tmp_path, EPHEMERAL))
    assert "platform: linux/arm64" in text
    assert (config.github.url, config.account) == ("https://github.acme.example/acme", "123456789012")
    assert config.permissions_boundary == "arn:aws:iam::123456789012:policy/limits"
    assert (config.kinds, config.log_days, config.max_runners) == (("on-demand",), 14, 6)
    (row,) = config.schedule
    assert (row.min_runners, row.start, row.end, row.days) == (6, "08:00", "18:00", ("mon", "tue", "wed", "fri"))
    assert (config.instance_types, config.labels, config.region) == (("c6g.large",), ("fill-in",), "fill-in-0")
    assert [line for line in lines if line.startswith("fill in") and "secret" not in line] == [
        "fill in: runners.region: aws_region is local.aws_region",
        "fill in: runners.instanceTypes: instance_types is var.second",
        "fill in: runners.labels: runner_extra_labels is an expression",
        "fill in: runners.maxRunners: runners_maximum_count is -1: no limit",
    ]
    assert keys(lines, "not taken")[:-1] == [
        "minimum_running_time_in_minutes",
        "block_device_mappings",
        "job_retry",
        "userdata_post_install",
        "pool_config",
    ]
    assert (config.idle, config.root) == (10, 200)


@every("minutes, idle, boot", [(3000, 10, 20), (0, 10, 20), (2.5, 10, 20), ('"60"', 60, 60), (1441, 10, 20), (120, 120, 120)])  # fmt: skip
def test_minutes_that_no_key_takes_are_named(tmp_path: Path, minutes: object, idle: int, boot: int) -> None:
    text = DEFAULT.replace("minutes = 5", f"minutes = {minutes}\nrunner_boot_time_in_minutes = {minutes}")
    config, _, lines = translated(written(tmp_path, text))
    assert (config.idle, config.boot) == (idle, boot)
    why = "takes whole minutes, from"
    said = ["not taken: minimum_running_time_in_minutes: runners.idle " + why + " 1 to 1440", "not taken: runner_boot_time_in_minutes: runners.boot " + why + " 5 to 120"]  # fmt: skip
    assert [line for line in lines if "minutes" in line] == (said if idle == 10 else [])


def test_pool_above_the_most_machines_is_named(tmp_path: Path) -> None:
    text = EPHEMERAL.replace("= -1", "= 4")
    config, _, lines = translated(written(tmp_path, text))
    assert (config.max_runners, config.schedule[0].min_runners) == (4, 4)
    assert "fill in: runners.maxRunners: pool_config has 6 machines, and runners_maximum_count is 4" in lines


def test_several_runners_become_sets_of_one_platform(tmp_path: Path) -> None:
    path = written(tmp_path, MULTI)
    config, _, lines = translated(path)
    own, either = config.all_sets
    assert (either.scale_set, either.max_runners) == ("either", 3)
    assert (own.scale_set, own.labels, own.max_runners) == ("linux-x64", ("amazon", "ubuntu-latest"), 1)
    assert (config.subnets, own.subnets) == (("subnet-0123456789abcdef0",), ("subnet-0123456789abcdef1",))
    assert keys(lines, "fill in")[:2] == ["runners.sets.from-yaml", "platform"]
    names = {f"multi_runner_config.{name}" for name in ("linux-arm64", "win", "a.b", "linux", "linux-x64")}
    assert names | {"fifo", "exactMatch", "runner_name_prefix", "github_app"} == set(keys(lines, "not taken")[:-1])
    other, _ = translated(path, "platform=linux/arm64")[0].all_sets
    assert (other.scale_set, other.labels) == ("linux-arm64", ("amazon",))


def test_platform_of_none_of_the_runners_is_refused(tmp_path: Path) -> None:
    """A stack would have no set, or machines of another processor."""
    several = MULTI.replace("var.architecture", '"x64"').replace('"arm64"\n', '"x64"\n')
    one = """module "runners" {
  source         = "github-aws-runners/github-runner/aws"
  instance_types = ["m7i.large"]
}"""
    for text in (several, one):
        with pytest.raises(SlipwayError) as caught:
            translated(written(tmp_path, text), "platform=linux/arm64")
        line = "platform=linux/arm64: all runners in the file are for linux/amd64: leave platform out"
        assert str(caught.value) == line


def test_sets_that_only_terraform_knows_are_filled_in(tmp_path: Path) -> None:
    text = MULTI[: MULTI.index('{\n    "linux')] + "local.all\n github_app = var.app\n}"
    config, _, lines = translated(written(tmp_path, text))
    assert "fill in: runners.sets: multi_runner_config is local.all" in lines
    assert [own.scale_set for own in config.all_sets] == ["fill-in"]
    config, _, lines = translated(tmp_path / "main.tf", "runners.sets={h100: {instanceTypes: [p5.4xlarge]}}")
    assert ([own.scale_set for own in config.all_sets], "runners.sets" in keys(lines, "fill in")) == (["h100"], False)


def test_sets_of_two_owners_have_theirs_to_be_filled_in(tmp_path: Path) -> None:
    """And a set's name is on one line."""
    text = MULTI.replace('runner_os             = "linux"', 'pool_runner_owner = "acme"')
    assert translated(written(tmp_path, text))[0].github.url == "https://github.com/acme"
    text = text.replace("acme", "other", 1).replace("from-yaml", r'"a\n\u001b"').replace("linux-arm64", "b")
    config, _, lines = translated(written(tmp_path, text.replace('"arm64"\n', '"x64"\n')))
    assert (config.github.url, "runners.github.url" in keys(lines, "fill in")) == ("https://github.com/-fill-in-", True)
    assert not any(set(line) & {"\n", "\x1b"} for line in lines)


def test_each_variable_is_taken_or_has_its_reason(tmp_path: Path) -> None:
    names = [*NAMES.split(), "for_each", "unheard_of"]
    body = "\n".join(f"{name} = var.x" for name in names)
    _, _, lines = translated(written(tmp_path, f'module "r" {{\nsource = "a/github-runner/aws"\n{body}\n}}'))
    assert names == keys(lines, "not taken")[:-1]
    assert [line.split(": ")[1] for line in lines if "no key of Slipway's takes it" in line] == ["unheard_of"]


def test_files_of_variables_and_json_are_read(tmp_path: Path) -> None:
    variables: dict[str, Any] = {
        "instance_types": ["g6.xlarge", "${var.x}"],
        "runner_extra_labels": ["gpu"],
        "tags": {},
    }
    module = {"module": {"r": [{"source": "github-aws-runners/github-runner/aws", **variables}]}}
    files = {
        "terraform.tfvars": 'instance_types = ["g6.xlarge", var.x]\nrunner_extra_labels = ["gpu"]\ntags = {}\n',
        "a.auto.tfvars.json": json.dumps(variables),
        "main.tf.json": json.dumps(module),
        "other.tf.json": json.dumps({"module": [module["module"]]}),
    }
    results = [translated(written(tmp_path, text, name)) for name, text in files.items()]
    assert results == [results[0]] * 4
    assert (results[0][0].instance_types, results[0][0].max_runners) == (("g6.xlarge",), 3)


RUNNERS = 'module "r" { source = "github-aws-runners/github-runner/aws" }\n'


@every(
    "name, text, line",
    [
        ("main.tf", "a b", "is not Terraform's HCL: line 1: expected NAME = VALUE"),
        ("main.tf", "a = [\n1,\n", "is not Terraform's HCL: line 3: expected a value"),
        ("main.tf", 'a = "x\n"', "is not Terraform's HCL: line 1: a text has no end"),
        ("main.tf", "a = <<EOT\nb", "is not Terraform's HCL: line 1: <<EOT has no end"),
        ("main.tf", "a = f(1\n", "is not Terraform's HCL: line 2: a bracket is not closed"),
        ("main.tf", "/* a", "is not Terraform's HCL: line 1: /* has no end"),
        ("main.tf", "a = " + "[" * 99_999, "is not Terraform's HCL"),
        ("main.tf", "\0\1ELF", "is not Terraform's HCL: line 1"),
        ("main.tf", "\xff", "is not Terraform's HCL"),
        ("main.tf", "a = 1\na {}", "is not Terraform's HCL"),
        ("main.tf.json", "{", "is not Terraform's JSON"),
        ("main.tf.json", "[]", "is not Terraform's JSON"),
        ("main.tf", " " * ((1 << 20) + 1), "is larger than 1 MiB"),
        ("main.tf", 'module "vpc" { source = "terraform-aws-modules/vpc/aws" }', "github-runner/aws; it has 0"),
        ("main.tf", RUNNERS + RUNNERS.replace('"r"', '"s"'), "it has 2: r, s: keep one in the file"),
        ("x.tfvars", 'region = "x"', "has no variables of terraform-aws-github-runner"),
        ("x.tfvars", "instance_types = 5", "has another shape than variables of terraform-aws-github-runner"),
        ("x.tfvars", "github_app = 1\nmulti_runner_config = { a = {} }", "has another shape than variables"),
    ],
)  # fmt: skip
def test_file_without_the_module_is_one_line(tmp_path: Path, name: str, text: str, line: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(SlipwayError) as caught:
        terraform_values(tmp_path / name, {})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@every(
    "text, value",
    [
        ("1 // one", 1),
        ("-1.5e3", -1500.0),
        ("null", None),
        (r'"a\n\"$${b} %%{c} $d é"', 'a\n"${b} %{c} $d é'),
        ("[\n1, # one\n[true,],\n]", [1, [True]]),
        ('{\n"a b" : 1, c = "x"\n\n(var.k) = 2 }', {"a b": 1, "c": "x", "an expression": 2}),
        ("<<-E\n  a }\n  E", "  a }\n"),
        ('"${f("}", "a")}"', Expression('"${f("}", "a")}"')),
        ("var.a ? 1 : 2 # x", Expression("var.a ? 1 : 2")),
        ("1 + 2", Expression("1 + 2")),
        ("[\nvar.a\n, 2]", [Expression("var.a"), 2]),
        ("[for x in y : {\n a = x }]", Expression("[for x in y : {\n a = x }]")),
        ("f(\n/* ) */ <<E\n)\nE\n)", Expression("f(\n/* ) */ <<E\n)\nE\n)")),
    ],
)  # fmt: skip
def test_values_are_read_as_terraform_reads_them(text: str, value: object) -> None:
    assert read_hcl(f"a = {text}\nb {{\n}}\n") == {"a": value, "b": [{}]}


@every("cron", ["0 0 9 * * 1", "* 30 9-17 * * 1-5", "* * 9-17 1 * *", "* * 17-9 * * *", "* * 9-24 * * *", "* * 8,9 * * *", "* * * * * 5-1", "* * * * * 1#2", "", "@daily"])  # fmt: skip
def test_time_that_is_not_of_whole_hours_is_named(tmp_path: Path, cron: str) -> None:
    text = DEFAULT.replace("* * 9-17 * * 1-5", cron)
    config, _, lines = translated(written(tmp_path, text))
    assert (config.schedule, "idle_config" in keys(lines, "not taken")) == ((), True)


def test_hours_of_a_whole_week_are_taken(tmp_path: Path) -> None:
    for cron, days in {"* * * * *": 7, "* * 9-17 * * 6,7": 2, "* * * ? * sun-sat": 7}.items():
        (row,) = translated(written(tmp_path, DEFAULT.replace("* * 9-17 * * 1-5", cron)))[0].schedule
        assert len(row.days) == days, cron


def test_new_from_a_module_writes_a_stack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    monkeypatch.setattr(new_stack, "write", partial(new_stack.write, root=tmp_path))
    monkeypatch.setattr(change, "ROOT", tmp_path)
    assert main(["new", "mine", "--from", str(written(tmp_path, DEFAULT)), "runners.idle=9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    stack = yaml.safe_load(stack_file("mine", tmp_path).read_text())["config"]["slipway:runners"]
    assert (stack["idle"], stack["labels"]) == (9, ["default", "Example"])
    assert [line.partition(":")[0] for line in lines] == ["fill in"] * 5 + ["not taken"] * 6 + [
        "stacks/Pulumi.mine.yaml"
    ]
