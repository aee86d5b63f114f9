incast=$PWD/configs/sim/incast.yaml
cd "$scratch"
rocesim run "$incast" -q --set workload.0.senders=3 --trace h1-h0=out.json --pcapng leaf0-h0=out.pcapng --out result
