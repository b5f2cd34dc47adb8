package quickstart

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/store/programs"
)

// inside is set where the test runs in its namespaces.
const inside = "NAVARCH_TEST_QUICKSTART"

// top is the root of the tree, from this package's folder.
const top = "../../.."

// inNamespaces runs the test of that name again, alone, in its own network, mount and process namespaces: all of its
// ports are free, its mounts are private, and its processes end with it. Without the right to create namespaces (no
// root, and no user namespaces) the test is skipped.
func inNamespaces(t *testing.T, name string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	for _, dir := range []string{"bin", "out"} { // to mount on
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("the quick start needs namespaces of its own (root, or user namespaces), for its ports: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// flags returns the compiler flags of this test and of the programs that store/programs links for tests, so that
// nothing is compiled or linked again.
func flags() string { return "GOFLAGS=" + os.Getenv("GOFLAGS") + " '" + programs.LinkFlags + "'" }

// arrive makes the namespaces look like a machine with a fresh clone of the repository: the loopback interface is up,
// and bin/ and out/ are empty except the programs of this tree from other tests, with old times. The go command leaves
// current programs unchanged and updates their times.
func arrive(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", filepath.Join(top, "bin"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatalf("mount on bin: %v", err)
	}
	put(t, filepath.Dir(programs.For(t, "navarchd")))
	if err := syscall.Mount("tmpfs", filepath.Join(top, "out"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatalf("mount on out: %v", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// put copies the programs of a folder into bin/.
func put(t *testing.T, from string) {
	t.Helper()
	for _, name := range entries(t, from) {
		program, err := os.ReadFile(filepath.Join(from, name))
		to := filepath.Join(top, "bin", name)
		if err == nil {
			err = os.WriteFile(to, program, 0o755)
		}
		if err == nil {
			err = os.Chtimes(to, time.Unix(0, 0), time.Unix(0, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// allAreBuilt wants that `make build` made each program in bin/, or found it up to date.
func allAreBuilt(t *testing.T) {
	t.Helper()
	for _, name := range entries(t, filepath.Join(top, "bin")) {
		if info, err := os.Stat(filepath.Join(top, "bin", name)); err != nil || info.ModTime().Unix() == 0 {
			t.Errorf("make build does not build bin/%s (%v)", name, err)
		}
	}
}
