"""The first screen of a report as the README shows it: python tests/report/screenshot.py REPORT OUTPUT.png

Beside OUTPUT.png, which is of the light scheme, OUTPUT-dark.png is written: both or neither.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from browser import chromium, visit

from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.files import replacing
from spdnn.core.safe_open import existing

LARGEST = 250_000  # bytes of a picture that a page loads without a thought


def pictures(report: Path, output: Path) -> tuple[Path, Path]:
    """Write the report's first screen, 1440 x 900 pixels, in both colour schemes.

    Returns:
        the file of the light scheme, which is `output`, and that of the dark.

    Raises:
        InputError: there is no such report; `output` is no .png, or in no folder; the page fails or asks for something.
        Unavailable: chromium or playwright is absent.
        SpdnnError: a picture is larger than LARGEST.
    """
    existing(report, "report (`make run` makes results/report.html)")
    if output.suffix != ".png":
        raise InputError(f"{output}: the picture is a PNG, so its name ends in .png")
    if not shutil.which("chromium"):
        raise Unavailable("the browser chromium is absent; install the Debian package chromium")
    dark = output.with_name(f"{output.stem}-dark.png")
    with replacing(output) as light_part, replacing(dark) as dark_part, chromium() as browser:
        for scheme, part in (("light", light_part), ("dark", dark_part)):
            with visit(browser, report, scheme=scheme) as seen:
                picture = seen.page.screenshot(animations="disabled")
                if seen.noticed:
                    raise InputError(f"{report}: not a report that is at rest; {seen.noticed[0]}")
            if len(picture) > LARGEST:
                raise SpdnnError(f"{report}: its {scheme} picture has {len(picture):,} bytes, of {LARGEST:,} allowed")
            part.write_bytes(picture)
    return output, dark


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="screenshot", description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="an .html file")
    parser.add_argument("output", type=Path, help="the .png file of the light scheme")
    args = parser.parse_args(arguments)
    try:
        for path in pictures(args.report, args.output):
            print(f"{path}: {path.stat().st_size:,} bytes")
    except SpdnnError as error:
        print(f"screenshot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
