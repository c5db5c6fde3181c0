"""``data prepare imagenet``, ``imagefolder``, ``mnist``, ``tfrecords``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.data import DEFAULT_STORE, Place
from weft.errors import DatasetError
from weft.prepare import require_extra
from weft.prepare.options import ImageOptions, Layout, Options, ResizeMode
from weft.ui.console import say, show_json
from weft.ui.progress import bar, images_bar, listing
from weft.ui.words import count, size

if TYPE_CHECKING:
    from weft.prepare.run import Summary
    from weft.prepare.source import Source
    from weft.prepare.targets import Target

# The modules that need the extra packages are imported by the commands, after a look whether those are there.

app = typer.Typer(
    no_args_is_help=True,
    help="Make an image data set ready for training: image folder, WebDataset or TFRecords.",
)

_TARGET = r"A folder (/…, ./…, ~/…), or [DATASTORE:]CONTAINER\[/PREFIX]."  # no tag of rich's
_SHOWN = 5  # corrupt images named on the terminal

TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help=_TARGET, show_default=False)]
LayoutOption = Annotated[Layout, typer.Option("--layout", help="What to write.")]
ResizeOption = Annotated[
    int | None, typer.Option(min=8, max=4096, metavar="N", help="Make images N × N, e.g. 224; default: as they are.")
]
ModeOption = Annotated[
    ResizeMode,
    typer.Option(
        "--resize-mode",
        help="crop: shorter side N, then the middle; short: shorter side N; stretch: both sides N.",
    ),
]
QualityOption = Annotated[int, typer.Option(min=1, max=100, help="Of JPEGs that are encoded anew.")]
RecordsOption = Annotated[int, typer.Option(min=1, max=999_999, help="Images a shard, at most.")]
SeedOption = Annotated[int, typer.Option(help="Decides the order of the images.")]
ProcessesOption = Annotated[int | None, typer.Option(min=1, max=512, help="Default: one a core.")]
FileOption = Path | None


def _file(flag: str, help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar="FILE", help=help_, show_default=False)
    return option


@app.command("imagenet")
def imagenet(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="With the archives.", show_default=False)],
    target: TargetArgument,
    train: Annotated[FileOption, _file("--train", "Instead of FOLDER/ILSVRC2012_img_train.tar.")] = None,
    validation: Annotated[FileOption, _file("--validation", "Instead of FOLDER/ILSVRC2012_img_val.tar.")] = None,
    devkit: Annotated[FileOption, _file("--devkit", "Instead of FOLDER/ILSVRC2012_devkit_t12.tar.gz.")] = None,
    ground_truth: Annotated[
        FileOption, _file("--ground-truth", "ILSVRC2012_validation_ground_truth.txt, else the devkit's.")
    ] = None,
    synsets: Annotated[
        FileOption, _file("--synsets", "Instead of a devkit: wnids in its order, or lines of `wnid ID`.")
    ] = None,
    layout: LayoutOption = Layout.TFRECORDS,
    resize: ResizeOption = None,
    resize_mode: ModeOption = ResizeMode.CROP,
    quality: QualityOption = 95,
    records: RecordsOption = 1024,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    as_json: JsonOption = False,
) -> None:
    """From the official archives of ILSVRC2012, which are read in place.

    FOLDER holds ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and
    ILSVRC2012_devkit_t12.tar.gz as they were downloaded.
    """
    require_extra()
    from weft.prepare.imagenet import Archives
    from weft.prepare.imagenet import imagenet as listed

    def read(tell: Callable[[str], None]) -> Source:
        archives = Archives.find(
            source, train=train, validation=validation, devkit=devkit, ground_truth=ground_truth, synsets=synsets
        )
        return listed(archives, tell)

    options = Options(layout, ImageOptions(resize, resize_mode, quality), records, seed)
    _prepare(ctx, source, read, target, options, processes, as_json)


@app.command("imagefolder")
def imagefolder(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of class folders, or a tar of it.", show_default=False)
    ],
    target: TargetArgument,
    validation_share: Annotated[
        float | None,
        typer.Option(
            min=0, max=0.9, help="Of each class; default: 0.1, if SOURCE has no validation/.", show_default=False
        ),
    ] = None,
    layout: LayoutOption = Layout.TFRECORDS,
    resize: ResizeOption = None,
    resize_mode: ModeOption = ResizeMode.CROP,
    quality: QualityOption = 95,
    records: RecordsOption = 1024,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    as_json: JsonOption = False,
) -> None:
    """From a folder of class folders, or an uncompressed tar of one.

    CLASS/image, or train/CLASS/image with validation/ (val/, valid/) and
    test/ beside it.
    """
    require_extra()
    from weft.prepare.folders import image_folder

    if target.startswith((".", "/", "~")) and Path(target).expanduser().resolve().is_relative_to(source.resolve()):
        raise DatasetError(f"the target {target} lies in the source {source}, where it would become a class of it")
    options = Options(layout, ImageOptions(resize, resize_mode, quality), records, seed)
    read = partial(image_folder, source, validation_share=validation_share, seed=seed)
    _prepare(ctx, source, lambda _: read(), target, options, processes, as_json)


@app.command("mnist")
def mnist(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="With the IDX files.", show_default=False)],
    target: TargetArgument,
    layout: LayoutOption = Layout.TFRECORDS,
    resize: ResizeOption = None,
    quality: QualityOption = 95,
    records: RecordsOption = 1024,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    as_json: JsonOption = False,
) -> None:
    """From IDX files: MNIST, Fashion-MNIST, KMNIST, EMNIST.

    FOLDER holds train-images-idx3-ubyte and train-labels-idx1-ubyte, and
    the same beginning with t10k for validation; plain or .gz.
    """
    require_extra()
    from weft.prepare.mnist import mnist as listed

    options = Options(layout, ImageOptions(resize, quality=quality), records, seed)
    _prepare(ctx, source, lambda _: listed(source), target, options, processes, as_json)


@app.command("tfrecords")
def tfrecords(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="With TFRecord files.", show_default=False)],
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help=_TARGET + " Without: verify.", show_default=False)
    ] = None,
    image_feature: Annotated[str, typer.Option(help="The feature with the image file.")] = "image",
    class_feature: Annotated[str, typer.Option(help="The feature with the class's number.")] = "class",
    first_class: Annotated[int, typer.Option(help="The first class's number; 1 where 0 is a background.")] = 0,
    classes: Annotated[
        FileOption, _file("--classes", "The classes' names, one a line, by number; else dataset.json's.")
    ] = None,
    layout: LayoutOption = Layout.TFRECORDS,
    resize: ResizeOption = None,
    resize_mode: ModeOption = ResizeMode.CROP,
    quality: QualityOption = 95,
    records: RecordsOption = 1024,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    as_json: JsonOption = False,
) -> None:
    """From TFRecords, ours or others': convert them; without TARGET, verify them.

    Verifying reads everything: checksums, features, each image in full,
    counts against the files' names and dataset.json.
    """
    require_extra()
    from weft.prepare.records import Features
    from weft.prepare.records import tfrecords as listed

    features = Features(image_feature, class_feature, first_class)
    if target is None:
        _verify(source, features, as_json)
        return
    names = _lines(classes) if classes else None
    options = Options(layout, ImageOptions(resize, resize_mode, quality), records, seed)
    _prepare(ctx, source, lambda _: listed(source, features, classes=names), target, options, processes, as_json)


def _prepare(
    ctx: typer.Context,
    name: Path,
    read: Callable[[Callable[[str], None]], Source],
    target: str,
    options: Options,
    processes: int | None,
    as_json: bool,
) -> None:
    from weft.prepare.run import Progress, prepare

    where = _target(ctx, target)
    part = _part(options)
    with listing(f"listing {escape(name.name or str(name))} …") as tell:
        source = read(tell)
    for note in source.notes:
        say(f"[yellow]![/] {escape(note)}")
    last: Progress | None = None
    try:
        with images_bar(f"{escape(name.name or str(name))} → {escape(str(where))}", source.count) as report:

            def progress(now: Progress) -> None:
                nonlocal last
                last = now
                report(now.images, f"{now.units}/{now.all_units} {part}s, {now.corrupt} corrupt")

            summary = prepare(source, where, options, processes=processes, progress=progress)
    except BaseException:
        if last is not None:
            say(f"[yellow]![/] {last.units:,} of {last.all_units:,} {part}s are done; the same command goes on")
        raise
    _tell(summary, options, where, as_json)


def _part(options: Options) -> str:
    return "part" if options.layout is Layout.IMAGEFOLDER else "shard"


def _tell(summary: Summary, options: Options, where: Target, as_json: bool) -> None:
    from weft.prepare.targets import REPORT

    if as_json:
        show_json({
            "target": str(where),
            "layout": options.layout.value,
            "splits": dict(summary.records),
            "bytes": summary.bytes,
            "files": summary.files,
            "corrupt": [dict(one) for one in summary.corrupt],
            "recoded": summary.recoded,
        })  # fmt: skip
        return
    if summary.earlier:
        say(f"[key]{count(summary.earlier, _part(options))} done before[/]")
    splits = ", ".join(f"{split} {number:,}" for split, number in summary.records.items())
    say(
        f"[green]✓[/] {splits}: {count(summary.files, 'file')}, {size(summary.bytes)}, "
        f"{options.layout.value} → {escape(str(where))}"
    )
    if summary.recoded:
        say(f"[key]{count(summary.recoded, 'image')} that {'was' if summary.recoded == 1 else 'were'} no plain JPEG, "
            f"made one (see {REPORT})[/]")  # fmt: skip
    if summary.corrupt:
        say(f"[yellow]![/] {count(len(summary.corrupt), 'corrupt image')} left out (see {REPORT}):")
        for one in summary.corrupt[:_SHOWN]:
            say(f"    {escape(one['split'])} {escape(one['image'])}: {escape(one['reason'])}")
        if len(summary.corrupt) > _SHOWN:
            say(f"    … and {len(summary.corrupt) - _SHOWN:,} more")


def _verify(folder: Path, features: object, as_json: bool) -> None:
    from weft.prepare.records import Features, shards, verify

    assert isinstance(features, Features)
    with bar(f"verifying {escape(str(folder))}", sum(path.stat().st_size for path in shards(folder))) as report:
        found = verify(folder, features, report)
    splits = {split: counts.total() for split, counts in found.counts.items()}
    if as_json:
        show_json({"files": found.files, "splits": splits, "problems": list(found.problems)})
    else:
        told = ", ".join(f"{split} {number:,}" for split, number in splits.items())
        mark = "[red]✗[/]" if found.problems else "[green]✓[/]"
        say(f"{mark} {count(found.files, 'file')}: {told}")
        for problem in found.problems:
            say(f"    {escape(problem)}")
    if found.problems:
        raise typer.Exit(1)


def _target(ctx: typer.Context, text: str) -> Target:
    from weft.prepare.targets import Folder, Store

    if text in (".", "..", "~") or text.startswith(("/", "./", "../", "~/")):
        return Folder(Path(text).expanduser())
    if ":" not in text and Path(text.partition("/")[0]).is_dir():
        raise DatasetError(
            f"{text!r} may be a folder or a container: "
            f"write ./{text} for the folder, {DEFAULT_STORE}:{text} for the container"
        )
    return Store(client_of(ctx), Place.parse(text))


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeError) as error:
        raise DatasetError(f"{path} can't be read: {error}") from error
