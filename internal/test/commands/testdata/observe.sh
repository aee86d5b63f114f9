cd "$scratch"
pair
traffic() { send local remote; }
