package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// columns matches the separator of columns: two or more spaces.
var columns = regexp.MustCompile(` {2,}`)

// leafTTL is the lifetime of a workload's certificate in the demo: short, so that a rotation can be observed.
const leafTTL = 16 * time.Second

func (m *mesh) data() string { return filepath.Join(m.dir, "data") }

// credentials writes the files that Kubernetes would mount to a workload's folder: a token of its service account, and
// the mesh's root.
func (m *mesh) credentials(w workload) error {
	dir := m.places[w.pod].config
	token, err := m.ctl(context.Background(), "token",
		"create", "--data-dir", m.data(), "--namespace", w.namespace, "--service-account", w.account)
	if err != nil {
		return err
	}
	root, err := os.ReadFile(filepath.Join(m.data(), "root-cert.pem"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	owner, err := os.Stat(dir)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"token": []byte(token), "root-cert.pem": root} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
		if is, ok := owner.Sys().(*syscall.Stat_t); ok && int(is.Uid) != os.Getuid() {
			if err := os.Chown(path, int(is.Uid), int(is.Gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ctl runs navarchctl and returns its output.
func (m *mesh) ctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.bin("navarchctl"), args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("navarchctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// certificate is one line of `navarchctl proxy-config secret`.
type certificate struct{ resource, kind, identity, serial, notAfter, issuer, epoch string }

// inUse returns the certificates in the Envoy of a workload.
func (m *mesh) inUse(ctx context.Context, w workload) (all []certificate, err error) {
	at := m.places[w.pod]
	argv := append(slices.Clone(at.enter), m.bin("navarchctl"), "proxy-config", "secret", "--envoy", at.admin)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(columns.ReplaceAllString(strings.TrimSpace(line), "\t"), "\t")
		if len(f) == 7 && f[0] != "RESOURCE" {
			all = append(all, certificate{f[0], f[1], f[2], f[3], f[4], f[5], f[6]})
		}
	}
	return all, nil
}

// leaf returns the certificate that a workload presents.
func (m *mesh) leaf(ctx context.Context, w workload) (certificate, error) {
	all, err := m.inUse(ctx, w)
	for _, c := range all {
		if c.kind == "leaf" && c.resource == "default" {
			return c, err
		}
	}
	return certificate{}, errors.Join(err, fmt.Errorf("the Envoy of %s has no certificate", w.pod))
}

// identities checks the certificate of each workload: its identity is the Pod's service account.
func (m *mesh) identities(ctx context.Context) (string, error) {
	var shown []string
	for _, w := range m.services.workloads {
		c, err := m.leaf(ctx, w)
		if err != nil {
			return strings.Join(shown, "; "), err
		}
		want := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", w.namespace, w.account)
		if c.identity != want {
			return c.identity, fmt.Errorf("the certificate of %s names %s, want %s", w.pod, c.identity, want)
		}
		if said := fmt.Sprintf("%s by epoch %s", strings.TrimPrefix(c.identity, "spiffe://cluster.local/"), c.epoch); !slices.Contains(shown, said) {
			shown = append(shown, said)
		}
	}
	return strings.Join(shown, "; "), nil
}

// plainText calls the proxy of a backend directly, without a certificate, which STRICT refuses.
func (m *mesh) plainText(to, path string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		w := m.services.of(to, "")[0]
		at := m.places[w.pod]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:8080%s", w.ip, path), nil)
		if err != nil {
			return "", err
		}
		req.Host = w.name() + "." + w.namespace
		res, err := at.client.Do(req)
		if err == nil {
			res.Body.Close()
			return fmt.Sprintf("status %d", res.StatusCode), errors.New("plain text was answered")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "", fmt.Errorf("nobody listens there: %w", err)
		}
		return "refused: " + strings.TrimPrefix(err.Error(), "Get "), nil
	}
}

// forbidden calls a backend from a workload that its AuthorizationPolicy does not allow.
func (m *mesh) forbidden(ctx context.Context) (string, error) {
	w := m.services.of("reviews", "")[0]
	caller := newCaller("http://"+m.places[w.pod].app, "reviews."+w.namespace, nil)
	r := caller.call(ctx, "catalog/")
	measured := "status " + strconv.Itoa(r.status) + " for reviews"
	if r.status != http.StatusForbidden {
		return measured, fmt.Errorf("want 403: %w", errors.Join(r.err))
	}
	return measured, nil
}
