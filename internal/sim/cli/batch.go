package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/sim/sweep"
)

// batch describes how a sweep runs on many machines.
type batch struct {
	slurm, kubernetes bool
	jobs, at          int
	program           string
	image, claim      string
}

// defaultJobs is the default limit of jobs: Slurm's arrays have 1001 elements unless MaxArraySize is set.
const defaultJobs = 1000

func (b *batch) flags(f *pflag.FlagSet) {
	f.BoolVar(&b.slurm, "slurm", false, "write a job array, slurm.sh, into the folder instead of running")
	f.BoolVar(&b.kubernetes, "kubernetes", false, "write an Indexed Job, job.yaml, into the folder instead of running")
	f.IntVar(&b.jobs, "jobs", 0, fmt.Sprintf("with --slurm or --kubernetes: number of jobs that share the runs (default: one per run, at most %d)", defaultJobs))
	f.IntVar(&b.at, "at-once", 0, "with --slurm or --kubernetes: number of concurrent jobs (default: all)")
	f.StringVar(&b.program, "program", "", "with --slurm: path of rocesim on the nodes (default: that of this program)")
	f.StringVar(&b.image, "image", "", "with --kubernetes: an image that has rocesim in its PATH")
	f.StringVar(&b.claim, "claim", "", "with --kubernetes: the PersistentVolumeClaim whose root is the folder")
}

func (b *batch) wanted() bool { return b.slurm || b.kubernetes }

func (b *batch) check() error {
	switch {
	case b.kubernetes && (b.image == "" || b.claim == ""):
		return about.Usage(errors.New("--kubernetes needs --image and --claim"))
	case !b.kubernetes && (b.image != "" || b.claim != ""):
		return about.Usage(errors.New("--image and --claim require --kubernetes"))
	case !b.slurm && b.program != "":
		return about.Usage(errors.New("--program requires --slurm"))
	case !b.wanted() && (b.jobs != 0 || b.at != 0):
		return about.Usage(errors.New("--jobs and --at-once require --slurm or --kubernetes; use --parallel"))
	case b.jobs < 0 || b.at < 0:
		return about.Usage(errors.New("--jobs and --at-once must not be negative"))
	}
	return nil
}

// writeBatch writes the files for Slurm and Kubernetes, and prints the commands that use them.
func (a *app) writeBatch(f *sweep.Folder, b *batch, title string) error {
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		return err
	}
	jobs := b.jobs
	jobs = cmp.Or(jobs, min(len(f.Plan.Runs), defaultJobs))
	at := b.at
	at = cmp.Or(at, jobs)
	if b.slurm {
		if b.program == "" {
			if b.program, err = os.Executable(); err != nil {
				return err
			}
		}
		file := filepath.Join(dir, "slurm.sh")
		if err := sweep.WriteFile(file, slurmScript(dir, b.program, jobName(title), jobs, at)); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "sbatch --wait %s   # and again, if jobs were lost\n", quote(file))
	}
	if b.kubernetes {
		file := filepath.Join(dir, "job.yaml")
		if err := sweep.WriteFile(file, kubernetesJob(b.image, b.claim, jobName(title), jobs, at)); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "# copy %s into the root of the volume of %s, then\nkubectl apply -f %s\n", quote(dir), b.claim, quote(file))
	}
	fmt.Fprintf(a.out, "rocesim collect %s\n", quote(f.Dir))
	return nil
}

// slurmScript returns a job array for the sweep in a folder. A job that is preempted or whose node fails continues
// with the missing runs.
func slurmScript(dir, program, name string, jobs, at int) []byte {
	return fmt.Appendf(nil, `#!/bin/bash
# Does the sweep in %s. Submit it again to continue with the missing runs.
#SBATCH --job-name=%s
#SBATCH --array=0-%d%%%d
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
exec >>%s/slurm-"$SLURM_ARRAY_TASK_ID".log 2>&1
exec %s work %s --shard "$SLURM_ARRAY_TASK_ID/%d" --parallel 1
`, dir, name, jobs-1, at, quote(dir), quote(program), quote(dir), jobs)
}

// kubernetesJob returns an Indexed Job for the sweep in the root of a volume. Kubernetes passes the index as an
// environment variable, and expands it in the command.
func kubernetesJob(image, claim, name string, jobs, at int) []byte {
	return fmt.Appendf(nil, `# Does the sweep in the root of the volume. Delete and apply it again to continue with the missing runs.
apiVersion: batch/v1
kind: Job
metadata:
  name: %s
spec:
  completionMode: Indexed
  completions: %d
  parallelism: %d
  backoffLimit: %d
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: rocesim
          image: %q
          command: [rocesim, work, /sweep, --shard, $(JOB_COMPLETION_INDEX)/%d, --parallel, "1"]
          resources:
            requests:
              cpu: "1"
          volumeMounts:
            - name: sweep
              mountPath: /sweep
      volumes:
        - name: sweep
          persistentVolumeClaim:
            claimName: %q
`, name, jobs, at, max(jobs/10, 6), image, jobs, claim)
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// jobName returns a name that both accept: in a host name's letters (RFC 1123), with space for an index.
func jobName(title string) string {
	name := "rocesim-" + notInNames.ReplaceAllString(strings.ToLower(title), "-")
	return strings.Trim(name[:min(len(name), 50)], "-")
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+-]+$`)

// quote quotes a word for a shell.
func quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
