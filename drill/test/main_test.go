package test

import (
	"testing"

	"roced.io/roced/internal/lab"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }
