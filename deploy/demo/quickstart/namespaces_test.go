package quickstart

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is set where the test runs in its namespaces.
const inside = "NAVARCH_TEST_QUICKSTART"

// top is the root of the tree, from this package's folder.
const top = "../../.."

// inNamespaces runs the test of that name once more, alone, in network, mount and process namespaces of its own: all of its
// ports are free, what it mounts is seen by nobody else, and what it started ends with it. Where the kernel allows none (no
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

// arrive makes the namespaces a machine on which the repository was just cloned: the loopback interface is up, bin/ and out/
// are empty.
func arrive(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "out"} {
		if err := syscall.Mount("tmpfs", filepath.Join(top, dir), "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatalf("mount on %s: %v", dir, err)
		}
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
