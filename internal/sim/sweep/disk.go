package sweep

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile writes a file atomically and durably: after a crash the file is complete or does not exist.
func WriteFile(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return flush(filepath.Dir(name))
}

// scratch makes a hidden folder beside dir. It is locked until lock is closed. scratch removes folders of crashed
// processes, whose locks the system has released.
func scratch(dir string) (tmp string, lock *os.File, err error) {
	prefix := "." + filepath.Base(dir) + "-"
	stale, err := filepath.Glob(filepath.Join(filepath.Dir(dir), prefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, s := range stale {
		if l, err := locked(s); err == nil {
			err = os.RemoveAll(s)
			if err := errors.Join(err, l.Close()); err != nil {
				return "", nil, err
			}
		}
	}
	if tmp, err = os.MkdirTemp(filepath.Dir(dir), prefix); err != nil {
		return "", nil, err
	}
	if lock, err = os.Open(tmp); err != nil {
		return "", nil, err
	}
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // not every file system has locks
	return tmp, lock, os.Chmod(tmp, 0o755)
}

// locked locks a folder; it fails if another process has the lock.
func locked(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// publish renames a folder after its files are on disk. If the target exists, another process has completed the
// same run, with the same results.
func publish(tmp, dir string) error {
	files, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := flush(filepath.Join(tmp, f.Name())); err != nil {
			return err
		}
	}
	if err := flush(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, done := os.Stat(filepath.Join(dir, noteFile)); done == nil {
			return nil
		}
		return err
	}
	return flush(filepath.Dir(dir))
}

// flush waits until a file or folder is on disk.
func flush(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
