cd "$scratch" # files of the user
remote        # has the device, mlx5_0 of the page
ADDRESS_OF_A=198.18.0.7 ADDRESS_OF_B=198.18.0.8
traffic() {
	on_b 'ib_write_bw -d mlx5_0 -n 100 >/dev/null' &
	sleep 1
	ib_write_bw -d rxe_a -n 100 "$ADDRESS_OF_B" >/dev/null
	builtin wait $!
}
