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
	proxyUID        = "1337" // Envoy's traffic is told from the app's by it
)

// redirect is what istio-init sets up: everything that the app sends goes to 15001, everything that comes for it to 15006.
// Not redirected: what Envoy itself sends, what stays on 127.0.0.1, and the ports of the agent.
const redirect = `*nat
:NV_INBOUND - [0:0]
:NV_REDIRECT - [0:0]
:NV_IN_REDIRECT - [0:0]
:NV_OUTPUT - [0:0]
-A NV_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A NV_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A PREROUTING -p tcp -j NV_INBOUND
-A NV_INBOUND -p tcp -m multiport --dports 22,15020,15021,15090 -j RETURN
-A NV_INBOUND -p tcp -j NV_IN_REDIRECT
-A OUTPUT -p tcp -j NV_OUTPUT
-A NV_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A NV_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner ` + proxyUID + ` -j NV_IN_REDIRECT
-A NV_OUTPUT -o lo -m owner ! --uid-owner ` + proxyUID + ` -j RETURN
-A NV_OUTPUT -m owner --uid-owner ` + proxyUID + ` -j RETURN
-A NV_OUTPUT -d 127.0.0.1/32 -j RETURN
-A NV_OUTPUT -j NV_REDIRECT
COMMIT
`

// netns is the network namespace of one workload: a wire to the other's, and one to the host for the control plane.
type netns struct {
	name         string
	wire         string // the host's end of the wire to the host
	host, inside string // its addresses
}

// canIntercept says why real redirection cannot be shown here, or nil. Being root is not enough: a container may not make
// namespaces.
func canIntercept() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	for _, program := range []string{"ip", "iptables-restore", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	probe := fmt.Sprintf("%s%d-probe", namespacePrefix, os.Getpid())
	if err := run(context.Background(), "ip", "netns", "add", probe); err != nil {
		return err
	}
	defer run(context.Background(), "ip", "netns", "del", probe)
	return run(context.Background(), "ip", "netns", "exec", probe, "iptables", "-w", "-t", "nat", "-L", "-n")
}

// wireUp makes one namespace per workload. The returned function takes all of it down again.
func wireUp(ctx context.Context, ips []string) (spaces []netns, down func(), err error) {
	dropStale()
	down = func() {
		for _, n := range spaces {
			run(context.Background(), "ip", "link", "del", n.wire) // the end of the namespace would take it, later
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
			{"-n", n.name, "route", "replace", spaces[0].host, "dev", "host0"}, // where the control plane listens
		} {
			if err := run(ctx, "ip", args...); err != nil {
				return nil, down, err
			}
		}
	}
	if err := run(ctx, "ip", "link", "add", "pod0", "netns", spaces[0].name, "type", "veth", "peer", "name", "pod0", "netns", spaces[1].name); err != nil {
		return nil, down, err
	}
	for i, n := range spaces {
		for _, args := range [][]string{
			{"-n", n.name, "addr", "add", ips[i] + "/24", "dev", "pod0"},
			{"-n", n.name, "link", "set", "pod0", "up"},
			{"-n", n.name, "route", "add", "default", "dev", "pod0"}, // virtual IPs need a route: redirection comes after it
		} {
			if err := run(ctx, "ip", args...); err != nil {
				return nil, down, err
			}
		}
		cmd := exec.CommandContext(ctx, "ip", "netns", "exec", n.name, "iptables-restore", "-w")
		cmd.Stdin = strings.NewReader(redirect)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, down, fmt.Errorf("iptables-restore in %s: %w: %s", n.name, err, out)
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

// dial connects from inside the namespace.
func (n netns) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// do calls f on a thread inside the namespace: a socket belongs to the namespace of the thread that makes it. The thread
// is not given back, so the runtime ends it.
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
