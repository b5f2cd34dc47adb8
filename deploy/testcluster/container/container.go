// Package container starts programs as a container runtime would: in the network namespace of their Pod, with mount, process, host name and
// IPC namespaces of their own, and a root that has the machine's programs (read-only), a file for each program of the image, and the volumes.
//
// Owns: the processes that it starts, and their namespaces, which end with the first of these processes.  Reads: the machine's /usr, /bin,
// /lib and /etc.  Never: the machine's files changed, but those of volumes; limits (there are no cgroups).
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/testcluster/netns"
)

// Mount is a file or folder of the machine that a container sees.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Spec is what one container is.
type Spec struct {
	Root         string            // an empty folder, on which the root is made; the caller's, until the container has ended
	Programs     map[string]string // paths inside to files of the machine
	Mounts       []Mount
	Hostname     string
	ReadOnlyRoot bool
	Args, Env    []string // Args[0] is found by the PATH of Env
	Dir          string   // where it starts; empty: /
	UID, GID     uint32
	Groups       []uint32
}

// Container is one that runs, or has ended.
type Container struct {
	spec       Spec
	process    *os.Process
	mu         sync.RWMutex
	namespaces [4]*os.File // see entered; nil once it has ended
	done       chan struct{}
	exit       Exit
}

// Exit is how a container ended: its code, or 128 and the signal that ended it.
type Exit struct {
	Code, Signal int
}

// argv0 is the name by which Init knows that this process is to become a container.
const argv0 = "navarch-testcluster-init"

// entered are the namespaces that a further process of a container has to enter, in this order: that of mounts is last, since it changes
// what paths mean.
var entered = [4]struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

// Start runs a container, whose output goes to stdout and stderr. The error says what could not be set up; then nothing is left.
func Start(space *netns.Space, spec Spec, stdout, stderr *os.File) (*Container, error) {
	// So that its user may open /dev/stdout.
	if err := errors.Join(stdout.Chown(int(spec.UID), int(spec.GID)), stderr.Chown(int(spec.UID), int(spec.GID))); err != nil {
		return nil, fmt.Errorf("output of user %d: %w", spec.UID, err)
	}
	settings, send, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer settings.Close()
	defer send.Close()
	problems, report, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer problems.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{argv0}, Env: []string{}, Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{settings, report},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC, Setsid: true}}
	err = space.Do(cmd.Start)
	_ = report.Close()
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	c := &Container{spec: spec, process: cmd.Process, done: make(chan struct{})}
	for i, n := range entered { // the process is not waited for yet, so its id is its own
		if c.namespaces[i], err = os.Open(fmt.Sprintf("/proc/%d/ns/%s", c.PID(), n.name)); err != nil {
			break
		}
	}
	if err == nil {
		err = json.NewEncoder(send).Encode(spec)
	}
	_ = send.Close()
	problem, err2 := io.ReadAll(problems) // until the program has replaced Init
	if err = errors.Join(err, err2); err == nil && len(problem) > 0 {
		err = errors.New(string(problem))
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.close()
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // what it says is in ProcessState
		c.exit = exitOf(cmd.ProcessState)
		c.close()
		close(c.done)
	}()
	return c, nil
}

// close forgets the namespaces, once nobody is about to enter them.
func (c *Container) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range c.namespaces {
		if f != nil {
			_ = f.Close()
			c.namespaces[i] = nil
		}
	}
}

func exitOf(s *os.ProcessState) Exit {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{128 + int(status.Signal()), int(status.Signal())}
	}
	return Exit{Code: s.ExitCode()}
}

// Done is closed once the first process, and with it every other, has ended.
func (c *Container) Done() <-chan struct{} { return c.done }

// Exit is how it ended; only after Done.
func (c *Container) Exit() Exit { return c.exit }

// PID is the first process, as this process sees it.
func (c *Container) PID() int { return c.process.Pid }

// Signal reaches the first process; one that has ended is left alone.
func (c *Container) Signal(s syscall.Signal) { _ = c.process.Signal(s) }

// Prepare makes cmd (Args, input and output) a further process of the container, and starts it. The caller waits for it. An error: the container
// has ended or cannot be entered, it has no such program, or the kernel does not start it.
func (c *Container) Prepare(cmd *exec.Cmd) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this function
		failed <- c.startInside(cmd)
	}()
	return <-failed
}

func (c *Container) startInside(cmd *exec.Cmd) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, n := range entered {
		if c.namespaces[i] == nil {
			return errors.New("the container has ended")
		}
		if err := unix.Setns(int(c.namespaces[i].Fd()), n.flag); err != nil {
			return fmt.Errorf("enter %s namespace: %w", n.name, err)
		}
	}
	path, err := find(cmd.Args[0], c.spec.Env, c.spec.Dir)
	if err != nil {
		return err
	}
	cmd.Path, cmd.Err, cmd.Env, cmd.Dir = path, nil, c.spec.Env, orRoot(c.spec.Dir)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if c.spec.UID != 0 || c.spec.GID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.spec.UID, Gid: c.spec.GID, Groups: c.spec.Groups}
	}
	return cmd.Start()
}

// find is the path of a program by the PATH among env.
func find(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !strings.HasPrefix(name, "/") {
			name = orRoot(dir) + "/" + name
		}
		return name, unix.Access(name, unix.X_OK)
	}
	paths := DefaultPath
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			paths = value
		}
	}
	for p := range strings.SplitSeq(paths, ":") {
		if at := p + "/" + name; unix.Access(at, unix.X_OK) == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%q: no such program in %s", name, paths)
}

// DefaultPath is the PATH of containers that have none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func orRoot(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}
