package drill

import (
	"testing"

	"roced.io/roced/internal/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }
