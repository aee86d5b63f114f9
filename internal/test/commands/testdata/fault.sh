cd "$scratch"
pair
traffic() { send local remote; send remote local; }
