package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/redirect/kernel"
	"navarch.io/navarch/deploy/testcluster/netns"
)

// redirectWith runs the command as a dry run.
func redirectWith(t *testing.T, env map[string]string, args ...string) (out, errs string, err error) {
	t.Helper()
	for k, v := range env {
		t.Setenv(k, v)
	}
	var stdout, stderr bytes.Buffer
	cmd := command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--dry-run"))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// The arguments of Istio's injection, with its name of the command and with ours, make the rules that deploy/redirect
// has for them.
func TestRedirectByStockArguments(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "deploy", "redirect", "testdata", "stock.nft"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redirect", "istio-iptables"} {
		out, errs, err := redirectWith(t, nil, name, "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info")
		if err != nil || out != string(want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if !strings.Contains(errs, "--log_output_level has no effect: ") {
			t.Errorf("a flag without effect is not reported: %q", errs)
		}
	}
}

// Each variable of istio-iptables is applied; a flag takes precedence over it.
func TestRedirectByEnvironment(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 10.96.0.10\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := redirectWith(t, map[string]string{
		"ENVOY_PORT": "1501", "INBOUND_CAPTURE_PORT": "1506", "INBOUND_TUNNEL_PORT": "1508", "PROXY_UID": "42", "PROXY_GID": "43", "ISTIO_INBOUND_PORTS": "*",
		"ISTIO_LOCAL_EXCLUDE_PORTS": "81", "ISTIO_SERVICE_CIDR": "10.0.0.0/8", "ISTIO_SERVICE_EXCLUDE_CIDR": "10.1.0.0/16", "ISTIO_OUTBOUND_PORTS": "82", "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE": "83",
		"ISTIO_EXCLUDE_INTERFACES": "net7", "KUBE_VIRT_INTERFACES": "vm7", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "84", "ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true",
	}, "redirect", "-z", "1606", "--dns-servers-from", conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"redirect to :1501", "redirect to :1606", "dport 1508 accept", "skuid 42", "skgid 43", "dport 81 accept", "ip daddr 10.0.0.0/8", "ip daddr 10.1.0.0/16 accept", "dport 82 redirect",
		"dport 83 accept", `iifname "net7" accept`, `iifname "vm7"`, "skgid 84 accept", "dport 53 ip daddr 10.96.0.10 redirect to :15053", "ip6 daddr fe80::1 redirect to :15053", "ct state invalid drop"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	if strings.Contains(out, "1506") {
		t.Error("the environment comes before a flag")
	}
}

// Text that cannot be parsed is an error, and no rules are applied then.
func TestRedirectRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for why, args := range map[string][]string{
		"no port":           {"-b", "all"},
		"want REDIRECT":     {"-m", "NONE"},
		"has no nameserver": {"--redirect-dns", "--dns-servers-from", empty},
		"DNS servers":       {"--redirect-dns", "--dns-servers-from", "/nowhere"},
		"unknown flag":      {"--no-such-flag"},
		"unknown command ":  {"sidecar"},
	} {
		if out, _, err := redirectWith(t, nil, append([]string{"redirect"}, args...)...); err == nil || !strings.Contains(err.Error(), why) || out != "" {
			t.Errorf("%v: %v, want %q; printed %q", args, err, why, out)
		}
	}
	if out, _, err := redirectWith(t, nil, "redirect", "-i", "*", "--redirect-dns", "--capture-all-dns"); err != nil || !strings.Contains(out, "th dport 53 redirect to :15053") {
		t.Errorf("all DNS: %v\n%s", err, out)
	}
}

// The program applies the rules to its own namespace, and exits with status 126 if it finds traffic that is not
// redirected.
func TestRedirectProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("real redirection needs root")
	}
	space, err := netns.New()
	if err != nil {
		t.Skipf("real redirection needs the right to make network namespaces: %v", err)
	}
	defer space.Close()
	present := func() (is bool) {
		t.Helper()
		if err := space.Do(func() (err error) { is, err = kernel.Present(); return err }); err != nil {
			t.Fatal(err)
		}
		return is
	}
	for _, step := range []struct {
		args    []string
		status  int
		present bool
	}{
		{[]string{"--verify"}, 126, false}, // the namespace has no address but loopback
		{[]string{"--run-validation", "--skip-rule-apply"}, 126, false},
		{[]string{"-b", "nonsense"}, 1, false},
		{[]string{"-b", "*", "-i", "*", "--verify=false"}, 0, true}, // like no flag
		{[]string{"-b", "*", "-i", "*"}, 0, true},
		{[]string{"--clean"}, 0, false},
		{[]string{"--clean"}, 0, false},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"istio-iptables"}, step.args...)...)
		cmd.Env = append(os.Environ(), "NAVARCH_TEST_AGENT=1")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := space.Do(cmd.Run)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != step.status || present() != step.present {
			t.Errorf("%v: status %d, rules there %t, want %d and %t: %v %s", step.args, cmd.ProcessState.ExitCode(), present(), step.status, step.present, err, &out)
		}
	}
}
