package vm

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestArchive: another program can read the archive.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.file("etc/deep/er/file", 0o640, []byte("content"))
	a.file("etc/deep/er/file", 0o640, []byte("a second one is left out"))
	a.link("etc/link", "deep/er/file")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 {
		t.Errorf("%d bytes", b.Len())
	}
	want := []string{"etc 40755 ", "etc/deep 40755 ", "etc/deep/er 40755 ", "etc/deep/er/file 100640 content",
		"etc/link 120777 deep/er/file", "TRAILER!!! 0 "}
	if got := list(t, b.Bytes()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// list reads an archive as the kernel does: a header of thirteen hexadecimal numbers, a name and the content. Name and
// content are padded to four bytes.
func list(t *testing.T, b []byte) (files []string) {
	take := func(n int) string {
		if n > len(b) {
			t.Fatalf("%d bytes are missing", n-len(b))
		}
		text := string(b[:n])
		b = b[min(len(b), (n+3)&^3):]
		return text
	}
	const headLen = 6 + 13*8
	for len(b) > 0 {
		var mode, size, nameLen int
		head := string(b[:headLen])
		if _, err := fmt.Sscanf(head[14:22]+" "+head[54:62]+" "+head[94:102], "%x %x %x", &mode, &size, &nameLen); err != nil || head[:6] != "070701" {
			t.Fatalf("header %q: %v", head, err)
		}
		name := strings.TrimSuffix(take(headLen + nameLen)[headLen:], "\x00")
		files = append(files, fmt.Sprintf("%s %o %s", name, mode, take(size)))
	}
	return files
}

// TestArchiveError: Close returns the first write error.
func TestArchiveError(t *testing.T) {
	a := newArchive(full{})
	a.file("large", 0o644, make([]byte, 2<<20))
	a.file("more", 0o644, nil)
	if err := a.Close(); !errors.Is(err, errFull) {
		t.Error(err)
	}
	if err := a.copy(filepath.Join(t.TempDir(), "missing"), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestDependencies: names in a module's section are read, with underscores for the dashes of file names.
func TestDependencies(t *testing.T) {
	for text, want := range map[string]string{
		"x\x00depends=ib-core,rdma_cm\x00y": "[ib_core rdma_cm]",
		"x\x00depends=\x00":                 "[]",
		"depends=not a string of its own":   "[]",
	} {
		if got := fmt.Sprint(dependencies([]byte(text))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestModules: modules load after their dependencies, and a kernel without rdma_rxe is refused.
func TestModules(t *testing.T) {
	tree := t.TempDir()
	dir := filepath.Join(tree, "lib/modules/6.1/kernel")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, depends string) {
		if err := os.WriteFile(filepath.Join(dir, name+".ko"), []byte("\x00depends="+depends+"\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("sch_netem", "")
	var b bytes.Buffer
	if err := addModules(newArchive(&b), tree); err == nil {
		t.Error("a kernel without rdma_rxe is accepted")
	}
	put("rdma_rxe", "ib_uverbs,udp-tunnel")
	put("ib_uverbs", "ib_core")
	put("ib_core", "")
	put("udp-tunnel", "ib_core")
	a := newArchive(&b)
	if err := addModules(a, tree); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if want := "sch_netem\nib_core\nib_uverbs\nudp_tunnel\nrdma_rxe\n"; !strings.Contains(b.String(), want) {
		t.Errorf("the order is not %q", want)
	}
}

// TestUnpackKernel: a file that is not a kernel is refused with the reason.
func TestUnpackKernel(t *testing.T) {
	tree := t.TempDir()
	to := filepath.Join(tree, "vmlinux")
	check := func(what, want string) {
		t.Helper()
		if err := unpackKernel(tree, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	check("nothing there", "0 kernels")
	if err := os.Mkdir(filepath.Join(tree, "boot"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(tree, "boot/vmlinuz-1")
	os.WriteFile(image, []byte("text"), 0o644)
	check("not compressed", "no ELF file compressed by")
	for _, c := range compressions {
		if _, err := exec.LookPath(c.command[0]); err != nil {
			t.Logf("not tried: %v", err) // setup.sh installs it
			continue
		}
		os.WriteFile(image, []byte("text"+c.magic+"rubbish"), 0o644)
		check("damaged, "+c.command[0], "no ELF file compressed by")
		program := exec.Command(c.command[0], "-c")
		program.Stdin = strings.NewReader("\x7fELF")
		out, err := program.Output()
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(image, append([]byte("text"), out...), 0o644)
		check("compressed, but no kernel, "+c.command[0], "no ELF file compressed by")
	}
}

// fakeVM is a machine on the other end of a pipe. f answers each script.
func fakeVM(t *testing.T, f func(script string) string) *VM {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	go func() {
		r := bufio.NewReader(far)
		for {
			line, err := r.ReadString('\n')
			script, bad := base64.StdEncoding.DecodeString(strings.TrimSuffix(line, "\n"))
			if err != nil || bad != nil {
				return
			}
			fmt.Fprint(far, f(string(script)))
		}
	}()
	return &VM{conn: near, reader: bufio.NewReader(near)}
}

// TestShell: answers are distinguished from errors. A machine that violates the protocol, or is late, is lost for good.
func TestShell(t *testing.T) {
	const soon = 30 * time.Second
	v := fakeVM(t, func(c string) string {
		switch c {
		case "good":
			return "ok 5\na\nb c"
		case "bad":
			return "error 3\nwhy"
		case "never":
			return ""
		}
		return "rubbish\n"
	})
	if out, err := v.Shell("good", soon); out != "a\nb c" || err != nil {
		t.Errorf("good: %q, %v", out, err)
	}
	var failed *ScriptError
	if _, err := v.Shell("bad", soon); !errors.As(err, &failed) || failed.Output != "why" {
		t.Errorf("bad: %v", err)
	}
	if _, err := v.Shell("never", time.Millisecond); !errors.Is(err, ErrLost) {
		t.Errorf("never: %v", err)
	}
	if _, err := v.Shell("good", soon); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "never") {
		t.Errorf("after a loss: %v", err)
	}
	v = fakeVM(t, func(string) string { return "rubbish\n" })
	if _, err := v.Shell("good", soon); !errors.Is(err, ErrLost) {
		t.Errorf("rubbish: %v", err)
	}
}

// TestLostMachine: the error of a machine that ended has the end of its console.
func TestLostMachine(t *testing.T) {
	v := fakeVM(t, func(string) string { return "rubbish\n" })
	v.log, v.ended = filepath.Join(t.TempDir(), "console.log"), make(chan error, 1)
	v.ended <- errors.New("exit status 9")
	if err := os.WriteFile(v.log, []byte("first\n"+strings.Repeat("line\n", 19)+"Kernel panic\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := v.Shell("good", 30*time.Second)
	for _, want := range []string{"Kernel panic", "QEMU has ended: exit status 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "first") {
		t.Errorf("more than the end: %v", err)
	}
	if len(v.ended) != 1 {
		t.Error("Close would wait for the machine")
	}
}

// TestCacheDir: the environment determines the cache folder.
func TestCacheDir(t *testing.T) {
	t.Setenv("ROCED_CACHE", "/somewhere")
	if dir, err := cacheDir("bookworm"); dir != "/somewhere/vm-bookworm" || err != nil {
		t.Error(dir, err)
	}
	t.Setenv("ROCED_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if dir, err := cacheDir("trixie"); dir != "/cache/roced/vm-trixie" || err != nil {
		t.Error(dir, err)
	}
}
