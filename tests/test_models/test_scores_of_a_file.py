"""An artifact whose scores are those of a model file takes them from nowhere else."""

from __future__ import annotations

from pathlib import Path

import joblib
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.data.container import Archive, read, write
from fairfix.models.user_file import file_hash
from sklearn.linear_model import LogisticRegression

from tests.data import scored


@pytest.mark.usefixtures("away")
def test_a_column_of_the_data_is_no_score_of_a_model_file() -> None:
    """Neither one that is there, which would be taken for the model's, nor one that is not; read by every command."""
    table = scored(rows=200, groups=2)
    pq.write_table(table.drop_columns(["score"]), "d.parquet")
    pq.write_table(table, "scored.parquet")
    joblib.dump(
        LogisticRegression().fit(table.select(["x"]).to_pandas(), table["label"].to_numpy()), "m.joblib"
    )
    model = ("--model", "m.joblib", "--trust-model", file_hash("m.joblib"), "--config", "none", "-q")
    line = ("repair", "d.parquet", "--protected", "race", "--method", "ramp", "-o", "r.fairfix", *model)
    assert run(list(line)) in (0, 1, 3)
    sound = read("r.fairfix")
    kept = {key: part for key, part in sound.manifest.items() if key not in ("arrays", "format")}

    for name in ("score", "other", "x"):
        columns = {**kept["columns"], "score": name}
        write("changed.fairfix", Archive({**kept, "columns": columns}, sound.arrays))
        for data in ("d.parquet", "scored.parquet"):
            assert run(["predict", "changed.fairfix", data, "-o", "o.parquet", *model]) == 2
        assert run(["inspect", "changed.fairfix"]) == 2
        assert run(["export", "changed.fairfix", "--to", "python", "--config", "none"]) == 2
    assert not Path("o.parquet").exists()
    assert run(["predict", "r.fairfix", "d.parquet", "-o", "o.parquet", *model]) == 0
