printf 'metrics: {listen: 127.0.0.1:9464}\nnics: [{name: rxe_a, port: {type: udp, address: 127.0.0.2}}]\n' >"$scratch/nic.yaml"
roced run --config "$scratch/nic.yaml" 2>"$scratch/log" &
until grep -q 'roced is ready' "$scratch/log"; do sleep 0.05; done
export ROCED_RUN_DIR=/run/roced
