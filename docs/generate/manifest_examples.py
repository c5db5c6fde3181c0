"""An example for each key of the manifest: what a user would write, with the keys that it needs beside it.

``complete`` makes a whole manifest of an example; the tests parse every one of them.
"""

from __future__ import annotations

import re

from docs.generate.unset import unset_settings

from weft_core.engine_settings import KubernetesSettings, LocalSettings, RaySettings
from weft_core.settings import IdentitySettings, ProfileSettings, Settings

WHOLE = """
name: mnist-horovod
description: Handwritten digits on two learners
labels: {team: vision}

engine: kubernetes
learners: 2
cpus: 4                                # every size is for one learner
gpus: 1
memory: 16 GiB

framework:
  name: horovod
  version: 0.28.1-torch2.13
  command: python train.py --epochs 20

data_stores:
  - id: digits
    datastore: default                 # the server keeps its address and credentials
    training_data: {container: mnist-data}
    training_results: {container: mnist-models, model: mnist}

checkpoint: {every: 10m, keep: 3}
retries: 2
max_runtime: 12h
env: {OMP_NUM_THREADS: "4"}
secrets: {WANDB_API_KEY: wandb}
"""

_INDEX = """
framework:
  name: pytorch
  packages: [our-models]
  index: {url: https://packages.example.com/simple, secret: index-password}
  command: python train.py
"""

_REPOSITORY = """
repo:
  url: https://github.com/team/project.git
  ref: main
  secret: github-token
  path: training/digits
"""

_SCHEDULE = "schedule: {cron: '0 3 * * MON-FRI', timezone: Europe/Berlin, overlap: queue}"
_PARAMETERS = """
parameters: {lr: 0.001, batch: 64}
framework: {name: pytorch, command: "python train.py --lr ${sweep.lr} --batch ${sweep.batch}"}
"""
_SWEEP = """
framework: {name: pytorch, command: "python train.py --lr ${sweep.lr} --batch ${sweep.batch}"}
sweep:
  parameters:
    lr: {log: [1e-4, 1e-1]}
    batch: [32, 64]
  metric: val/accuracy
  goal: max
  trials: 40
  parallel: 4
  search: tpe
  stop: {value: 0.99, after: 12h, failures: 5}
  seed: 1
"""
_RUNGS = """
framework: {name: pytorch, command: "python train.py --lr ${sweep.lr} --epochs ${sweep.epochs}"}
sweep:
  parameters:
    lr: {log: [1e-4, 1e-1]}
  metric: val/accuracy
  trials: 27
  search: asha
  rungs: {parameter: epochs, min: 1, max: 27, reduction: 3, sync: true}
"""
_POPULATION = """
framework: {name: pytorch, command: "python train.py --lr ${sweep.lr} --epochs ${sweep.epochs}"}
sweep:
  parameters:
    lr: {log: [1e-4, 1e-1]}
  metric: val/accuracy
  search: pbt
  population: 8
  rungs: {parameter: epochs, max: 20, every: 2}
"""
_RANGES = """
sweep:
  parameters:
    lr: {log: [1e-4, 1e-1]}
    dropout: {uniform: [0, 0.5], step: 0.1}
    layers: {int: [1, 6]}
    width: {int_log: [16, 1024]}
    optimizer: {values: [sgd, adamw], set: env.OPTIMIZER}
  metric: loss
  goal: min
"""
_OWN_STORE = """
data_stores:
  - id: cos
    type: s3
    connection:
      auth_url: https://s3.example.org
      user_name: AKIAEXAMPLE
      password: EXAMPLE-SECRET-KEY{more}
    training_data: {{container: mnist-data}}
"""
_OWN = _OWN_STORE.format(more="")
_FOLDER = """
data_stores:
  - type: mount_volume
    connection: {type: host_mount, name: data, path: /data/vision}
    training_data: {container: digits}
"""
_DATA = """
data_stores:
  - datastore: default
    training_data: {{{keys}}}
"""
_RESULTS = """
data_stores:
  - datastore: default
    training_results: {{{keys}}}
"""
_PRETRAINED = """
data_stores:
  - datastore: default
    pretrained_model: {container: models, prefix: resnet50}
"""
_PRETRAINED_MODEL = """
data_stores:
  - pretrained_model: {model: digits@production}
"""
_WHEELS = """
framework:
  name: pytorch
  packages: [our-models]
  command: python train.py
data_stores:
  - datastore: team-data
    wheels: {container: builds, prefix: wheels}
"""
_TENSORBOARD = "evaluation_metrics: {type: tensorboard, in: $JOB_STATE_DIR/logs/tb}"
_FRAMEWORK = """
framework:
  name: pytorch
  version: "2.13"
  launcher: torchrun
  command: python train.py --epochs 12
"""
_RULES = """
notify: {email: ada@example.org}
rules:
  - {when: "metric loss is nan", then: [notify, halt]}
  - {when: "log /CUDA error/", then: notify}
  - {when: "no step for 10m", then: halt}
"""
_REGEX = """
evaluation_metrics:
  type: regex_extractor
  line_lookahead: 2
  groups:
    train:
      regex: '.*time %{TIMESTAMP:when} step %{INT:step} loss %{FLOAT:loss}'
      meta: {time: $when}
      scalars: {loss: {type: FLOAT, value: $loss}}
      etimes: {iteration: {type: INT, value: $step}}
"""
_EVENT_TYPES = "evaluation_metrics: {{type: tensorboard, in: $LOG_DIR/tb, {key}: [scalars]}}"
_STORE = "data_stores[]"
_GROUPS = "evaluation_metrics.groups.LABEL"

EXAMPLES: dict[str, str] = {
    "name": "name: mnist-horovod",
    "description": "description: Handwritten digits on two learners",
    "version": 'version: "1.2"',
    "labels": "labels: {team: vision, dataset: mnist}",
    "engine": "engine: kubernetes",
    "priority": "priority: 80",
    "learners": "learners: 4",
    "elastic": "learners: 2\nelastic: {min: 1, max: 4}\nframework: {name: horovod, command: python train.py}",
    "elastic.min": "learners: 4\nelastic: {min: 2, max: 4}",
    "elastic.max": "learners: 2\nelastic: {min: 1, max: 8}",
    "profile": "profile: a100x2",
    "cpus": "cpus: 1.5",
    "gpus": "gpus: 2",
    "gpu_type": "gpus: 2\ngpu_type: A100",
    "memory": "memory: 16 GiB",
    "storage": "storage: 50Gb",
    "framework": _FRAMEWORK,
    "framework.name": "framework: {name: tensorflow, command: python train.py}",
    "framework.version": """
engine: kubernetes
framework:
  name: custom
  version: registry.example.org/team/train:7
  command: python3 train.py
""",
    "framework.launcher": _FRAMEWORK,
    "framework.packages": """
framework:
  name: pytorch
  packages: [transformers==4.57.*, lightning]
  command: python train.py
""",
    "framework.requirements": """
framework:
  name: pytorch
  requirements: requirements.txt
  command: python train.py
""",
    "framework.wheels": """
framework:
  name: pytorch
  packages: [our-models]
  wheels: wheels/*.whl
  command: python train.py
""",
    "framework.index": _INDEX,
    "framework.index.url": _INDEX,
    "framework.index.secret": _INDEX,
    "framework.command": """
framework:
  name: pytorch
  command: |
    pip install einops
    python train.py --epochs 12
""",
    "framework.image_tag": "framework: {name: pytorch, image_tag: dev, command: python train.py}",
    "repo": "repo: {url: https://github.com/team/project.git, ref: v1.2}",
    "repo.url": "repo: {url: https://github.com/team/project.git}",
    "repo.ref": "repo: {url: https://github.com/team/project.git, ref: 0f3c1d5a7b9e2468ace013579bdf02468ace1357}",
    "repo.secret": _REPOSITORY,
    "repo.path": _REPOSITORY,
    "data_stores": """
data_stores:
  - id: digits
    datastore: default
    training_data: {container: mnist-data}
    training_results: {container: mnist-models}
""",
    f"{_STORE}.id": "data_stores:\n  - id: digits\n    datastore: default\n    training_data: {container: mnist-data}",
    f"{_STORE}.type": _FOLDER,
    f"{_STORE}.connection": _OWN,
    f"{_STORE}.connection.auth_url": _OWN,
    f"{_STORE}.connection.user_name": _OWN,
    f"{_STORE}.connection.password": _OWN,
    f"{_STORE}.connection.session_token": _OWN_STORE.format(more="\n      session_token: EXAMPLE-SESSION-TOKEN"),
    f"{_STORE}.connection.ca": _OWN_STORE.format(
        more="\n      ca: |\n        -----BEGIN CERTIFICATE-----\n        MIIB…\n        -----END CERTIFICATE-----"
    ),
    f"{_STORE}.connection.region": _OWN_STORE.format(more="\n      region: eu-central-1"),
    f"{_STORE}.connection.domain_name": _OWN_STORE.format(more="\n      domain_name: example"),
    f"{_STORE}.connection.project_id": _OWN_STORE.format(more="\n      project_id: 0123abcd"),
    f"{_STORE}.connection.type": _FOLDER,
    f"{_STORE}.connection.name": _FOLDER,
    f"{_STORE}.connection.path": _FOLDER,
    f"{_STORE}.datastore": _DATA.format(keys="container: mnist-data"),
    f"{_STORE}.training_data": _DATA.format(keys="container: imagenet, prefix: webdataset/train"),
    f"{_STORE}.training_data.container": _DATA.format(keys="container: mnist-data"),
    f"{_STORE}.training_data.prefix": _DATA.format(keys="container: imagenet, prefix: webdataset/train"),
    f"{_STORE}.training_data.mode": _DATA.format(keys="container: imagenet, mode: stream"),
    f"{_STORE}.training_data.include": _DATA.format(keys='container: imagenet, include: ["*.tar", "labels/**"]'),
    f"{_STORE}.training_data.exclude": _DATA.format(keys='container: imagenet, exclude: "*-broken.tar"'),
    f"{_STORE}.training_data.shard": _DATA.format(keys="container: imagenet, shard: learner"),
    f"{_STORE}.training_results": _RESULTS.format(keys="container: mnist-models, prefix: horovod"),
    f"{_STORE}.training_results.container": _RESULTS.format(keys="container: mnist-models"),
    f"{_STORE}.training_results.prefix": _RESULTS.format(keys="container: mnist-models, prefix: horovod"),
    f"{_STORE}.training_results.model": "data_stores:\n  - training_results: {model: digits}",
    f"{_STORE}.pretrained_model": _PRETRAINED,
    f"{_STORE}.pretrained_model.container": _PRETRAINED,
    f"{_STORE}.pretrained_model.prefix": _PRETRAINED,
    f"{_STORE}.pretrained_model.model": _PRETRAINED_MODEL,
    f"{_STORE}.wheels": _WHEELS,
    f"{_STORE}.wheels.container": _WHEELS,
    f"{_STORE}.wheels.prefix": _WHEELS,
    f"{_STORE}.model": "data_stores:\n  - model: digits@3\n    training_results: {model: digits}",
    "checkpoint": "checkpoint: {every: 10m, keep: 5}",
    "checkpoint.every": "checkpoint: {every: 1h30m}",
    "checkpoint.keep": "checkpoint: {keep: 10}",
    "stall": "stall: {after: 20m, action: end}",
    "stall.after": "stall: {after: 2h}",
    "stall.action": "stall: {action: ignore}",
    "after": "after: [job-7qw2ldk3m9zt, job-b4xk81hs0vye]",
    "after[].job": "after: {job: job-7qw2ldk3m9zt}",
    "after[].on": "after: {job: job-7qw2ldk3m9zt, on: ended}",
    "retries": "retries: 2",
    "max_runtime": "max_runtime: 12h",
    "keep_on_failure": "keep_on_failure: 30m",
    "env": 'env: {OMP_NUM_THREADS: "4", HOROVOD_CYCLE_TIME: "20"}',
    "secrets": "secrets: {WANDB_API_KEY: wandb}",
    "results": 'results: [model.pt, "out/**"]',
    "keep_leftovers": "keep_leftovers: false",
    "evaluation_metrics": _TENSORBOARD,
    "evaluation_metrics.type": "evaluation_metrics: {type: emetrics_file}",
    "evaluation_metrics.image_tag": "evaluation_metrics: {type: logger, image_tag: latest}",
    "evaluation_metrics.in": _TENSORBOARD,
    "evaluation_metrics.line_lookahead": _REGEX,
    "evaluation_metrics.eventTypes": _EVENT_TYPES.format(key="eventTypes"),
    "evaluation_metrics.event_types": _EVENT_TYPES.format(key="event_types"),
    "evaluation_metrics.groups": _REGEX,
    f"{_GROUPS}.regex": _REGEX,
    f"{_GROUPS}.meta": _REGEX,
    f"{_GROUPS}.meta.time": _REGEX,
    f"{_GROUPS}.scalars": _REGEX,
    f"{_GROUPS}.scalars.NAME.type": _REGEX,
    f"{_GROUPS}.scalars.NAME.value": _REGEX,
    f"{_GROUPS}.etimes": _REGEX,
    f"{_GROUPS}.etimes.NAME.type": _REGEX,
    f"{_GROUPS}.etimes.NAME.value": _REGEX,
    "identity": "identity: {audience: sts.amazonaws.com}",
    "identity.audience": "identity: {audience: sts.amazonaws.com}",
    "identity.subject": "identity: {audience: 'api://AzureADTokenExchange', subject: project}",
    "notify": "notify: [{url: https://example.org/hook, on: [COMPLETED, FAILED]}]",
    "notify[].url": "notify: {url: https://example.org/hook}",
    "notify[].email": "notify: {email: ada@example.org}",
    "notify[].on": "notify: {url: https://example.org/hook, on: FAILED}",
    "notify[].format": "notify: {url: https://hooks.example.org/services/T0/B0, format: slack}",
    "notify[].secret": "notify: {url: https://example.org/hook, secret: hook-key}",
    "parameters": _PARAMETERS,
    "sweep": _SWEEP,
    "sweep.parameters": _SWEEP,
    "sweep.parameters.NAME.values": _RANGES,
    "sweep.parameters.NAME.uniform": _RANGES,
    "sweep.parameters.NAME.log": _RANGES,
    "sweep.parameters.NAME.int": _RANGES,
    "sweep.parameters.NAME.int_log": _RANGES,
    "sweep.parameters.NAME.step": _RANGES,
    "sweep.parameters.NAME.set": _RANGES,
    "sweep.metric": _SWEEP,
    "sweep.goal": _SWEEP,
    "sweep.trials": _SWEEP,
    "sweep.parallel": _SWEEP,
    "sweep.search": _SWEEP,
    "sweep.rungs": _RUNGS,
    "sweep.rungs.parameter": _RUNGS,
    "sweep.rungs.min": _RUNGS,
    "sweep.rungs.max": _RUNGS,
    "sweep.rungs.reduction": _RUNGS,
    "sweep.rungs.sync": _RUNGS,
    "sweep.rungs.every": _POPULATION,
    "sweep.population": _POPULATION,
    "sweep.stop": _SWEEP,
    "sweep.stop.value": _SWEEP,
    "sweep.stop.after": _SWEEP,
    "sweep.stop.failures": _SWEEP,
    "sweep.seed": _SWEEP,
    "schedule": "schedule: '0 3 * * *'",
    "schedule.cron": _SCHEDULE,
    "schedule.timezone": _SCHEDULE,
    "schedule.overlap": _SCHEDULE,
    "on": "on: digits@production",
    "rules": _RULES,
    "rules[].when": _RULES,
    "rules[].then": _RULES,
}


def complete(example: str) -> str:
    """The example as a whole manifest: with a name and a framework, unless it has them."""
    text = example.strip() + "\n"
    if not re.search(r"^name:", text, re.MULTILINE):
        text += "name: example\n"
    if not re.search(r"^framework:", text, re.MULTILINE):
        text += "framework: {name: pytorch, launcher: torchrun, command: python train.py}\n"
    return text


def installation() -> Settings:
    """Settings under which all examples are valid: with the engines and the profile that they name."""
    return unset_settings(
        engines={"local": LocalSettings(), "kubernetes": KubernetesSettings(), "ray": RaySettings()},
        profiles={"a100x2": ProfileSettings(cpus=8, gpus=2, gpu_type="A100", memory=64 << 30)},
        identity=IdentitySettings(issuer="https://weft.example.com"),
    )
