SHARED=$scratch/shared
mkdir out "$SHARED"
