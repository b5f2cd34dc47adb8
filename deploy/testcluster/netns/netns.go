// Package netns creates and connects network namespaces for the cluster of processes: an outer one with a bridge for
// the nodes, one for each node with a bridge for its Pods, and one for each Pod.
//
// Owns: the namespaces that it created, until Close, or until the process ends. Reads: nothing. Never: changes other
// namespaces or links, or addresses of the machine.
package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Space is one network namespace. It has no name in the file system, so it disappears once it is closed and no process
// is in it.
type Space struct {
	handle netns.NsHandle
}

// New creates a namespace with loopback enabled. The error is that of the kernel.
func New() (*Space, error) {
	s := &Space{}
	err := onThread(func() (err error) {
		if s.handle, err = netns.New(); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		return up("lo")
	})
	return s, err
}

// Current returns the namespace of this process. The error is that of the kernel.
func Current() (*Space, error) {
	s := &Space{}
	err := onThread(func() (err error) {
		s.handle, err = netns.Get()
		return err
	})
	return s, err
}

// Do calls f on a thread inside of the namespace, and waits for it: a socket belongs to the namespace of the thread
// that creates it, and a process to that of the thread that starts it. A process that f starts must not have a
// parent-death signal, because the thread ends with f. The error reports that the namespace cannot be entered, or is
// that of f.
func (s *Space) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// Close releases the namespace.
func (s *Space) Close() { _ = s.handle.Close() }

// onThread calls f on a thread of its own, which ends afterwards, so that f's changes to the thread affect no other
// code.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// sysctl writes a kernel setting of the namespace of this thread.
func sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644)
}

// forward makes the namespace of this thread a router. Packets that cross a bridge also pass the rules of kube-proxy,
// so that replies within one node are translated back.
func forward() error {
	for _, setting := range [][2]string{{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"}, {"ipv6/conf/default/accept_dad", "0"},
		{"bridge/bridge-nf-call-iptables", "1"}, {"bridge/bridge-nf-call-ip6tables", "1"}} {
		if err := sysctl(setting[0], setting[1]); err != nil {
			return fmt.Errorf("kernel setting: %w", err)
		}
	}
	return nil
}
