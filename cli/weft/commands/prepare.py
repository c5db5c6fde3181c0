"""``data prepare imagenet``, ``imagefolder``, ``mnist``, ``tfrecords``: the command line of the package ``weft_data``.

No other module of the client imports that package. The modules of it that need the extra ``data`` are imported inside
the commands, after :func:`weft_data.require_extra`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from weft.commands.common import JsonOption, client_of
from weft.errors import WeftError
from weft.resources.data import DEFAULT_STORE, Place
from weft.ui.console import say, show_json
from weft.ui.progress import bar, images_bar, listing
from weft.words import count, size
from weft_data import require_extra
from weft_data.errors import DatasetError
from weft_data.options import ImageOptions, Layout, Options, ResizeMode

if TYPE_CHECKING:
    from weft_data.records import Features
    from weft_data.run import Summary
    from weft_data.source import Source
    from weft_data.targets import Target


class _PrepareGroup(TyperGroup):
    """Turns the errors of ``weft_data`` into errors of the client."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DatasetError as error:
            raise WeftError(str(error)) from error


app = typer.Typer(
    cls=_PrepareGroup,
    no_args_is_help=True,
    help="Convert an image data set into a layout for training: image folder, WebDataset or TFRecords.",
)

_TARGET = r"A folder (/…, ./…, ~/…), or [DATASTORE:]CONTAINER\[/PREFIX]."  # escaped: rich would take it for a tag
_SHOWN = 5  # corrupt images that the terminal names

TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help=_TARGET, show_default=False)]
LayoutOption = Annotated[Layout, typer.Option("--layout", help="Layout of the result.")]
ResizeOption = Annotated[
    int | None,
    typer.Option(min=8, max=4096, metavar="N", help="Make images N × N, e.g. 224. Default: keep their sizes."),
]
ModeOption = Annotated[
    ResizeMode,
    typer.Option(
        "--resize-mode",
        help="crop: scale the shorter side to N and keep the middle. short: scale the shorter side to N and keep the "
        "proportions. stretch: scale both sides to N.",
    ),
]
QualityOption = Annotated[int, typer.Option(min=1, max=100, help="Quality of JPEGs that are re-encoded.")]
RecordsOption = Annotated[int, typer.Option(min=1, max=999_999, help="Maximum number of images per shard.")]
SeedOption = Annotated[int, typer.Option(help="Determines the order of the images.")]
ProcessesOption = Annotated[int | None, typer.Option(min=1, max=512, help="Default: one per core.")]
FileOption = Path | None


def _file(flag: str, help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar="FILE", help=help_, show_default=False)
    return option


@app.command("imagenet")
def imagenet(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the archives.", show_default=False)
    ],
    target: TargetArgument,
    train: Annotated[FileOption, _file("--train", "Use instead of FOLDER/ILSVRC2012_img_train.tar.")] = None,
    validation: Annotated[FileOption, _file("--validation", "Use instead of FOLDER/ILSVRC2012_img_val.tar.")] = None,
    devkit: Annotated[FileOption, _file("--devkit", "Use instead of FOLDER/ILSVRC2012_devkit_t12.tar.gz.")] = None,
    ground_truth: Annotated[
        FileOption, _file("--ground-truth", "ILSVRC2012_validation_ground_truth.txt. Default: the file in the devkit.")
    ] = None,
    synsets: Annotated[
        FileOption,
        _file("--synsets", "Use instead of a devkit: a list of wnids in the devkit's order, or lines of `wnid ID`."),
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
    """Prepare ILSVRC2012 from its official archives, without unpacking them.

    FOLDER holds ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and
    ILSVRC2012_devkit_t12.tar.gz, as downloaded.
    """
    require_extra()
    from weft_data.imagenet import Archives
    from weft_data.imagenet import imagenet as listed

    def read(report: Callable[[str], None]) -> Source:
        archives = Archives.find(
            source, train=train, validation=validation, devkit=devkit, ground_truth=ground_truth, synsets=synsets
        )
        return listed(archives, report)

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
            min=0,
            max=0.9,
            help="Share of each class that becomes validation images. Default: 0.1 if SOURCE has no validation/.",
            show_default=False,
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
    """Prepare a folder of class folders, or an uncompressed tar of it.

    The images are CLASS/image, or train/CLASS/image with validation/ (or
    val/, valid/) and test/ beside train/.
    """
    require_extra()
    from weft_data.folders import image_folder

    if target.startswith((".", "/", "~")) and Path(target).expanduser().resolve().is_relative_to(source.resolve()):
        raise WeftError(f"the target {target} is inside the source {source}, where it would become a class")
    options = Options(layout, ImageOptions(resize, resize_mode, quality), records, seed)
    read = partial(image_folder, source, validation_share=validation_share, seed=seed)
    _prepare(ctx, source, lambda _: read(), target, options, processes, as_json)


@app.command("mnist")
def mnist(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the IDX files.", show_default=False)
    ],
    target: TargetArgument,
    layout: LayoutOption = Layout.TFRECORDS,
    resize: ResizeOption = None,
    quality: QualityOption = 95,
    records: RecordsOption = 1024,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prepare MNIST, Fashion-MNIST, KMNIST or EMNIST from its IDX files.

    FOLDER holds train-images-idx3-ubyte and train-labels-idx1-ubyte, and
    for validation two files that begin with t10k instead of train. Each
    file may be compressed (.gz).
    """
    require_extra()
    from weft_data.mnist import mnist as listed

    options = Options(layout, ImageOptions(resize, quality=quality), records, seed)
    _prepare(ctx, source, lambda _: listed(source), target, options, processes, as_json)


@app.command("tfrecords")
def tfrecords(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the TFRecord files.", show_default=False)
    ],
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help=_TARGET + " Without it: verify.", show_default=False)
    ] = None,
    image_feature: Annotated[str, typer.Option(help="Name of the feature that holds the image file.")] = "image",
    class_feature: Annotated[str, typer.Option(help="Name of the feature that holds the class number.")] = "class",
    first_class: Annotated[
        int, typer.Option(help="Number of the first class. Use 1 if class 0 is the background.")
    ] = 0,
    classes: Annotated[
        FileOption,
        _file("--classes", "File with one class name per line, in order of class numbers. Default: dataset.json."),
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
    """Convert TFRecords, from Weft or another program; without TARGET, verify them.

    To verify, the command reads everything: the checksums, the features and
    every image. It compares the counts with the names of the files and with
    dataset.json.
    """
    require_extra()
    from weft_data.records import Features
    from weft_data.records import tfrecords as listed

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
    from weft_data.run import Progress, prepare

    where = _target(ctx, target)
    part = _part(options)
    with listing(f"listing {escape(name.name or str(name))} …") as report_file:
        source = read(report_file)
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
            say(
                f"[yellow]![/] {last.units:,} of {last.all_units:,} {part}s are done; "
                "run the same command again to continue"
            )
        raise
    _print_summary(summary, options, where, as_json)


def _part(options: Options) -> str:
    return "part" if options.layout is Layout.IMAGEFOLDER else "shard"


def _print_summary(summary: Summary, options: Options, where: Target, as_json: bool) -> None:
    from weft_data.targets import REPORT

    if as_json:
        show_json({
            "target": str(where),
            "layout": options.layout.value,
            "splits": dict(summary.records),
            "bytes": summary.bytes,
            "files": summary.files,
            "corrupt": [dict(image) for image in summary.corrupt],
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
        say(f"[key]{count(summary.recoded, 'image')} converted to plain JPEG (see {REPORT})[/]")
    if summary.corrupt:
        say(f"[yellow]![/] {count(len(summary.corrupt), 'corrupt image')} left out (see {REPORT}):")
        for image in summary.corrupt[:_SHOWN]:
            say(f"    {escape(image['split'])} {escape(image['image'])}: {escape(image['reason'])}")
        if len(summary.corrupt) > _SHOWN:
            say(f"    … and {len(summary.corrupt) - _SHOWN:,} more")


def _verify(folder: Path, features: Features, as_json: bool) -> None:
    from weft_data.records import shards, verify

    with bar(f"verifying {escape(str(folder))}", sum(path.stat().st_size for path in shards(folder))) as report:
        found = verify(folder, features, report)
    splits = {split: counts.total() for split, counts in found.counts.items()}
    if as_json:
        show_json({"files": found.files, "splits": splits, "problems": list(found.problems)})
    else:
        numbers = ", ".join(f"{split} {number:,}" for split, number in splits.items())
        mark = "[red]✗[/]" if found.problems else "[green]✓[/]"
        say(f"{mark} {count(found.files, 'file')}: {numbers}")
        for problem in found.problems:
            say(f"    {escape(problem)}")
    if found.problems:
        raise typer.Exit(1)


def _target(ctx: typer.Context, text: str) -> Target:
    from weft.commands.store_target import StoreTarget
    from weft_data.targets import Folder

    if text in (".", "..", "~") or text.startswith(("/", "./", "../", "~/")):
        return Folder(Path(text).expanduser())
    if ":" not in text and Path(text.partition("/")[0]).is_dir():
        raise WeftError(
            f"{text!r} may be a folder or a container: "
            f"write ./{text} for the folder, {DEFAULT_STORE}:{text} for the container"
        )
    return StoreTarget(client_of(ctx), Place.parse(text))


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeError) as error:
        raise WeftError(f"{path} can't be read: {error}") from error
