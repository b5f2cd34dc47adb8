package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	namespacePrefix = "navarch-demo-"
	proxyUID        = "1337" // distinguishes Envoy's traffic from the app's
)

// redirectFlags are the flags that injection passes to the init container: outbound traffic goes to 15001, inbound
// traffic to 15006. Envoy's own traffic, traffic on 127.0.0.1 and the agent's ports are exempt.
var redirectFlags = []string{"redirect", "-p", "15001", "-z", "15006", "-u", proxyUID, "-m",
	"REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020"}

// netns is the network namespace of one workload, with a link to the other workload and one to the host for the control
// plane.
type netns struct {
	name         string
	wire         string // the host's end of the link to the host
	host, inside string // its addresses
}

// canIntercept returns why redirection is not possible here; nil: it is. Root is not sufficient: in a container the
// creation of namespaces may be refused.
func canIntercept() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	for _, program := range []string{"ip", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	probe := fmt.Sprintf("%s%d-probe", namespacePrefix, os.Getpid())
	if err := run(context.Background(), "ip", "netns", "add", probe); err != nil {
		return err
	}
	return run(context.Background(), "ip", "netns", "del", probe)
}

// wireUp creates one namespace for each workload, redirected by the agent's program. down removes all of them.
func wireUp(ctx context.Context, agent string, ips []string) (spaces []netns, down func(), err error) {
	dropStale()
	down = func() {
		for _, n := range spaces {
			run(context.Background(), "ip", "link", "del", n.wire) // deleting the namespace would also delete it, but later
			run(context.Background(), "ip", "netns", "del", n.name)
		}
	}
	defer func() {
		if err != nil {
			down()
		}
	}()
	pid := os.Getpid()
	for i := range ips {
		n := netns{
			name: fmt.Sprintf("%s%d-%c", namespacePrefix, pid, 'a'+i),
			wire: fmt.Sprintf("nv%d%c", pid%1000000, 'a'+i), // at most 15 bytes
			host: fmt.Sprintf("169.254.77.%d", 4*i+1), inside: fmt.Sprintf("169.254.77.%d", 4*i+2),
		}
		if err := run(ctx, "ip", "netns", "add", n.name); err != nil {
			return nil, down, err
		}
		spaces = append(spaces, n)
		for _, args := range [][]string{
			{"link", "add", n.wire, "type", "veth", "peer", "name", "host0", "netns", n.name},
			{"addr", "add", n.host + "/30", "dev", n.wire},
			{"link", "set", n.wire, "up"},
			{"-n", n.name, "link", "set", "lo", "up"},
			{"-n", n.name, "addr", "add", n.inside + "/30", "dev", "host0"},
			{"-n", n.name, "link", "set", "host0", "up"},
			{"-n", n.name, "route", "replace", spaces[0].host, "dev", "host0"}, // address of the control plane
		} {
			if err := run(ctx, "ip", args...); err != nil {
				return nil, down, err
			}
		}
	}
	if err := run(ctx, "ip", "link", "add", "pod0", "netns", spaces[0].name, "type", "veth",
		"peer", "name", "pod0", "netns", spaces[1].name); err != nil {
		return nil, down, err
	}
	for i, n := range spaces {
		for _, args := range [][]string{
			{"-n", n.name, "addr", "add", ips[i] + "/24", "dev", "pod0"},
			{"-n", n.name, "link", "set", "pod0", "up"},
			{"-n", n.name, "route", "add", "default", "dev", "pod0"}, // virtual IPs need a route: redirection follows routing
		} {
			if err := run(ctx, "ip", args...); err != nil {
				return nil, down, err
			}
		}
		if err := run(ctx, "ip", append([]string{"netns", "exec", n.name, agent}, redirectFlags...)...); err != nil {
			return nil, down, err
		}
	}
	return spaces, down, nil
}

// dropStale removes namespaces of demos that were killed.
func dropStale() {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for _, row := range strings.Split(string(out), "\n") {
		name, _, _ := strings.Cut(row, " ")
		var pid int
		var letter string
		if _, err := fmt.Sscanf(name, namespacePrefix+"%d-%s", &pid, &letter); err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, os.ErrNotExist) {
			run(context.Background(), "ip", "netns", "del", name)
		}
	}
}

func run(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// dial connects from inside of the namespace.
func (n netns) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// do calls f on a thread inside of the namespace, because a socket belongs to the namespace of the thread that creates
// it. The thread stays locked, so the runtime ends it.
func (n netns) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		file, err := os.Open("/var/run/netns/" + n.name)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			done <- fmt.Errorf("enter %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}
