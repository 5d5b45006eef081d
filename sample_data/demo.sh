#!/bin/sh
# The main job from end to end on the sample data. Usage: sh sample_data/demo.sh FOLDER_FOR_RESULTS
set -eu
out=$1
here=$(dirname "$0")

say() { printf '\n== %s\n' "$1"; }

say 'Audit the scored loan book by race'
fairfix audit "$here/loans.parquet" --config none --protected race --out json="$out/audit.json"

say 'The same by a model file: refused until its hash is pinned'
hash=$(python "$here/build_model.py" "$out/model.joblib")
if fairfix audit "$here/loans.parquet" --config none --protected race --model "$out/model.joblib" >/dev/null; then
    echo 'an unpinned pickle was loaded' >&2
    exit 1
fi
fairfix audit "$here/loans.parquet" --config none --protected race --model "$out/model.joblib" --trust-model "$hash" --format markdown >"$out/audit_by_model.md"

say 'Gate it: a difference in selection rates above 0.05 fails (status 1)'
status=0
fairfix audit "$here/loans.parquet" --config none --protected race --check 'dp.difference<=0.05' --format json >"$out/gate.json" || status=$?
echo "exit status $status"
[ "$status" = 1 ]

say 'Repair it, with proof on held-out rows'
fairfix repair "$here/loans.parquet" --config none --method ramp --protected race --id applicant_id --check 'dp.difference<=0.15' --output "$out/repaired.fairfix"

say 'Decide on new applicants'
fairfix predict "$out/repaired.fairfix" "$here/new_applicants.csv" --config none --output "$out/decided.csv"
head -n 3 "$out/decided.csv"
fairfix predict "$out/repaired.fairfix" "$here/loans.parquet" --config none --output "$out/decided.parquet"

say 'Audit what the repaired predictor decided'
fairfix audit "$out/decided.parquet" --config none --protected race --label label --probability p_positive --check 'dp.difference<=0.1'
fairfix audit "$out/decided.parquet" --config none --protected race --label label --prediction decision --format markdown >"$out/decided.md"
fairfix inspect "$out/repaired.fairfix"
