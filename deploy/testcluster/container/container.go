// Package container starts programs like a container runtime. They run in the network namespace of their Pod, with
// mount, process, host name and IPC namespaces of their own. Their root has the machine's programs (read-only), a file
// for each program of the image, and the volumes.
//
// Owns: the processes that it starts, and their namespaces, which end with the first of these processes. Reads: the
// machine's /usr, /bin, /lib and /etc. Never: changes files of the machine, except in volumes; limits resources (there
// are no cgroups).
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

// Mount is a file or folder of the machine that is mounted in a container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Spec describes one container.
type Spec struct {
	Root         string            // an empty folder for the root, which the caller owns; in use until the container has ended
	Programs     map[string]string // files of the machine by paths in the container
	Mounts       []Mount
	Hostname     string
	ReadOnlyRoot bool
	Args, Env    []string // Args[0] is searched in the PATH of Env
	Dir          string   // working directory; empty: /
	UID, GID     uint32
	Groups       []uint32
}

// Container is a running or ended container.
type Container struct {
	spec       Spec
	process    *os.Process
	mu         sync.RWMutex
	namespaces [4]*os.File // see entered; nil once the container has ended
	done       chan struct{}
	exit       Exit
}

// Exit is the end of a container: its exit code, or 128 plus the signal that ended it.
type Exit struct {
	Code, Signal int
}

// argv0 is the name by which Init recognises a container process.
const argv0 = "navarch-testcluster-init"

// entered are the namespaces that a further process of a container must enter, in this order. Mounts are last, because
// they change the meaning of paths.
var entered = [4]struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

// Start starts a container, with its output to stdout and stderr. The error names the failed step; nothing is left
// running then.
func Start(space *netns.Space, spec Spec, stdout, stderr *os.File) (*Container, error) {
	// The container's user must be able to open /dev/stdout.
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
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{argv0},
		Env: []string{}, Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{settings, report},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC, Setsid: true}}
	err = space.Do(cmd.Start)
	_ = report.Close()
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	c := &Container{spec: spec, process: cmd.Process, done: make(chan struct{})}
	for i, n := range entered { // the process ID stays valid until Wait
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
		_ = cmd.Wait() // ProcessState has the result
		c.exit = exitOf(cmd.ProcessState)
		c.close()
		close(c.done)
	}()
	return c, nil
}

// close closes the namespaces, once no process is entering them.
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

// Done returns a channel that is closed once the first process, and so all others, have ended.
func (c *Container) Done() <-chan struct{} { return c.done }

// Exit returns the end of the container; it is valid only after Done.
func (c *Container) Exit() Exit { return c.exit }

// PID returns the first process, as this process sees it.
func (c *Container) PID() int { return c.process.Pid }

// Signal signals the first process; after its end it does nothing.
func (c *Container) Signal(s syscall.Signal) { _ = c.process.Signal(s) }

// Prepare starts cmd (Args, input and output) as a further process of the container; the caller waits for it. Errors:
// the container has ended or cannot be entered, the program does not exist in it, or the kernel refuses to start it.
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

// find returns the path of a program in the PATH of env.
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

// DefaultPath is the PATH of containers without one.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func orRoot(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}
