"""Give each model the denoising steps, the other networks and the seconds of audio of a sample, where it has them."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

expands = True

COLUMNS = (
    "steps_per_sample",
    "passes_per_step",
    "other_parameters",
    "other_flops_per_sample",
    "audio_seconds_per_sample",
)


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("model", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("model", name)
