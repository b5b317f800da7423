"""``torchstone deploy modal``: puts judges on Modal, a cloud service, with one function for each GPU type."""

from __future__ import annotations

import click

from torchstone.cli.parameters import split_commas


@click.command()
@click.option("--gpu", "gpus", multiple=True, metavar="TYPES", help="Only these GPU types: T4,H100; default: all.")
@click.option(
    "--max-containers",
    type=click.IntRange(min=1),
    metavar="N",
    default=8,
    show_default=True,
    help="Containers of one GPU type at the same time.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deployed, send nothing.")
@click.option("--json", "as_json", is_flag=True, help="The declaration as JSON.")
def deploy_modal(gpus: tuple[str, ...], max_containers: int, dry_run: bool, as_json: bool) -> None:
    """Deploy one function for each GPU type to Modal, with the versions that are installed here.

    Needs the extra `modal` and an account (modal token new).
    """
    from torchstone.executors import modal_app
    from torchstone.executors.modal_executor import as_ours, import_modal
    from torchstone.schema import encode

    chosen = tuple(dict.fromkeys(map(modal_app.known_gpu, split_commas(gpus) or tuple(modal_app.GPUS))))
    modal = import_modal()
    app = modal_app.make_app(modal, chosen, max_containers)
    functions = {modal_app.function_name(gpu): modal_app.GPUS[gpu] for gpu in chosen}
    if not dry_run:
        try:
            app.deploy()
        except Exception as error:
            raise as_ours(error, chosen[0]) from error
    declaration = {
        "app": modal_app.APP,
        "deployed": not dry_run,
        "image": modal_app.BASE_IMAGE,
        "pins": modal_app.pins(),
        "functions": functions,
    }
    if as_json:
        click.echo(encode(declaration).decode())
        return
    click.echo(f"{'would deploy' if dry_run else 'deployed'} app {modal_app.APP} on {modal_app.BASE_IMAGE}")
    click.echo(f"  with {', '.join(modal_app.pins())}")
    for name, gpu in functions.items():
        click.echo(f"  {name}: {gpu}")
