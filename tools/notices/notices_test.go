package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestNotices checks that the file in the tree matches the programs' current modules.
func TestNotices(t *testing.T) {
	want, err := notices("../..")
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile("../../THIRD_PARTY_NOTICES")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, want) {
		t.Error("THIRD_PARTY_NOTICES is stale: go run ./tools/notices")
	}
	for _, some := range []string{"Go's standard library", "github.com/spf13/cobra v", "github.com/prometheus/client_golang v"} {
		if !strings.Contains(string(want), "\n"+some) {
			t.Errorf("nothing about %s", some)
		}
	}
	if strings.Contains(string(want), "honnef.co/go/tools") {
		t.Error("the linter is not part of the programs")
	}
}
