package loopback

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// child is the variable by which this test binary reserves a number of addresses, prints them, and waits for the end of
// its input.
const child = "NAVARCH_LOOPBACK_CHILD"

func TestMain(m *testing.M) {
	n, err := strconv.Atoi(os.Getenv(child))
	if err != nil {
		os.Exit(m.Run())
	}
	for range n {
		address, err := Address()
		fmt.Println(address, err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// others starts a process that holds n ports, until the function is called that it returns.
func others(t *testing.T, n int) (held map[int]bool, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(child, "=", n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	held = map[int]bool{}
	for lines := bufio.NewScanner(out); len(held) < n && lines.Scan(); {
		address, problem, _ := strings.Cut(lines.Text(), " ")
		if problem != "<nil>" {
			t.Fatal(problem)
		}
		held[port(t, address)] = true
	}
	if len(held) < n {
		t.Fatalf("the other process has %d different ports of %d", len(held), n)
	}
	return held, func() { in.Close(); _ = cmd.Wait() }
}

func port(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Ports are different, outside of the kernel's range for connections, and can be bound.
func TestAddresses(t *testing.T) {
	first, last := ephemeral()
	seen := map[int]bool{}
	for range 200 {
		address := For(t)
		p := port(t, address)
		if seen[p] {
			t.Errorf("port %d twice", p)
		}
		seen[p] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for _, p := range ours.ports {
		if p >= first && p <= last && first-lowest+highest-last > 2*few {
			t.Fatalf("port %d is to choose from: connections have %d to %d", p, first, last)
		}
	}
}

// In a small range, a port that one process has reserved is given to no other process until the first one ends, even if
// it is not listened on.
func TestReservedAgainstOtherProcesses(t *testing.T) {
	held, end := others(t, 50)
	r := reserved{ports: slices.Sorted(maps.Keys(held))}
	if got, err := r.take("127.0.0.1"); err == nil || !strings.Contains(err.Error(), "none of 50 ports is free") {
		t.Fatalf("another process has all: %q, %v", got, err)
	}
	end()
	var got []string
	for range held {
		address, err := r.take("127.0.0.1")
		if err != nil {
			t.Fatalf("the process has ended, and its ports are not free: %v", err)
		}
		got = append(got, address)
	}
	if slices.Sort(got); len(slices.Compact(got)) != len(held) {
		t.Errorf("given twice: %v", got)
	}
}

// A port with a listener, of any process, is not given.
func TestListenedTo(t *testing.T) {
	l, err := net.Listen("tcp", For(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := port(t, l.Addr().String())
	ours.mu.Lock()
	for i, m := range ours.marks { // as if it were of a process that does not use this package
		if m.LocalAddr().String() == fmt.Sprintf("@navarch-loopback-%d", busy) {
			_ = m.Close()
			ours.marks = slices.Delete(ours.marks, i, i+1)
			break
		}
	}
	ours.next = slices.Index(ours.ports, busy)
	ours.mu.Unlock()
	if got := port(t, For(t)); got == busy {
		t.Errorf("somebody listens on %d", got)
	}
}

// An address that cannot be had is named.
func TestNoAddress(t *testing.T) {
	for ip, want := range map[string]string{"localhost": `"localhost" is no IP address`, "192.0.2.1": "192.0.2.1"} {
		if got, err := On(ip); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", ip, got, err, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct{ first, last, lowest, highest, n int }{
		{32768, 60999, 16000, 32767, 16768},
		{16384, 60999, 16000, 65535, 384 + 4536}, // too few below
		{1024, 60000, 60001, 65535, 5535},
		{1024, 65535, 16000, 65535, 49536}, // none that is safe
		{1024, 65000, 16000, 65535, 49536},
	} {
		if got := below(c.first, c.last); got[0] != c.lowest || got[len(got)-1] != c.highest || len(got) != c.n {
			t.Errorf("connections have %d to %d: %d ports, %d to %d", c.first, c.last, len(got), got[0], got[len(got)-1])
		}
	}
}

// The addresses of a net can be listened on, and are not given to others while the process runs.
func TestNet(t *testing.T) {
	given := map[string]bool{}
	for range 100 {
		prefix := NetFor(t)
		if given[prefix] {
			t.Fatalf("%s was given twice", prefix)
		}
		given[prefix] = true
		l, err := net.Listen("tcp", prefix+".254:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if m, err := named(prefix); err == nil {
			_ = m.Close()
			t.Fatalf("%s can be had again", prefix)
		}
	}
}
