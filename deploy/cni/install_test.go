package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navarch.io/navarch/store/apiserver"
)

// The plugin is inserted once, at the end of the chain, whatever the chain contained. Everything else is unchanged.
func TestInsert(t *testing.T) {
	entry := map[string]any{"type": pluginName, "kubernetes": map[string]any{"kubeconfig": "/k"}}
	for what, test := range map[string]struct{ text, want string }{
		"a list":              {`{"cniVersion":"1.0.0","name":"n","disableCheck":true,"plugins":[{"type":"bridge","mtu":1500},{"type":"portmap"}]}`, `{"cniVersion":"1.0.0","name":"n","disableCheck":true,"plugins":[{"type":"bridge","mtu":1500},{"type":"portmap"},{"type":"navarch-cni","kubernetes":{"kubeconfig":"/k"}}]}`},
		"a list that has it":  {`{"name":"n","plugins":[{"type":"navarch-cni","old":1},{"type":"bridge"}]}`, `{"name":"n","plugins":[{"type":"bridge"},{"type":"navarch-cni","kubernetes":{"kubeconfig":"/k"}}]}`},
		"one plugin":          {`{"cniVersion":"0.3.1","name":"n","type":"bridge"}`, `{"cniVersion":"0.3.1","name":"n","plugins":[{"cniVersion":"0.3.1","name":"n","type":"bridge"},{"type":"navarch-cni","kubernetes":{"kubeconfig":"/k"}}]}`},
		"a list with nothing": {`{"name":"n","plugins":[]}`, `{"name":"n","plugins":[{"type":"navarch-cni","kubernetes":{"kubeconfig":"/k"}}]}`},
	} {
		got, err := insert([]byte(test.text), entry)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var a, b any
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.want), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s: (- want, + got) %s", what, diff)
		}
		again, err := insert(got, entry)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: a second time it is another: %s %v", what, again, err)
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"plugins": {}}`} {
		if _, err := insert([]byte(text), entry); err == nil {
			t.Errorf("%q is taken for a configuration", text)
		}
	}
}

// played is an installation on a node that the test plays.
type played struct {
	*installer
	t *testing.T
}

func newPlayed(t *testing.T) played {
	t.Helper()
	dir := t.TempDir()
	p := played{&installer{log: slog.New(slog.DiscardHandler), binDir: filepath.Join(dir, "bin"), confDir: filepath.Join(dir, "net.d"), hostConfDir: "/etc/cni/net.d", serviceAccount: filepath.Join(dir, "sa")}, t}
	for _, d := range []string{p.binDir, p.confDir, p.serviceAccount} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.write(filepath.Join(p.serviceAccount, "token"), "secret-token")
	p.write(filepath.Join(p.serviceAccount, "ca.crt"), "no certificate")
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	return p
}

func (p played) write(path, text string) {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p played) install() {
	p.t.Helper()
	for _, step := range []func() error{p.copyProgram, p.writeKubeconfig, p.chain} {
		if err := step(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// has reports whether a file exists and contains a text.
func has(path, what string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(text), what)
}

// An installation is complete once the files exist, is repaired after another plugin's installation has rewritten the
// chain, and is removed completely.
func TestInstall(t *testing.T) {
	i := newPlayed(t)
	if err := i.chain(); err == nil {
		t.Error("there is a chain in an empty folder")
	}
	list := filepath.Join(i.confDir, "10-net.conflist")
	original := `{"name":"n","plugins":[{"type":"bridge"}]}`
	i.write(list, original)
	i.write(filepath.Join(i.confDir, "20-other.conflist"), original)
	i.install()
	if !has(list, pluginName) || has(filepath.Join(i.confDir, "20-other.conflist"), pluginName) {
		t.Error("not the first configuration is the one with the plugin")
	}
	kubeconfig := filepath.Join(i.confDir, kubeconfigName)
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 || !has(kubeconfig, "https://[fd00::1]:443") {
		t.Errorf("kubeconfig: %v %v", info, err)
	}
	if config, err := apiserver.Config(kubeconfig); err != nil || config.BearerToken != "secret-token" || string(config.CAData) != "no certificate" {
		t.Errorf("%+v %v", config, err)
	}
	if info, err := os.Stat(filepath.Join(i.binDir, pluginName)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("program: %v %v", info, err)
	}
	i.write(list, original)
	i.write(filepath.Join(i.serviceAccount, "token"), "next-token")
	i.install()
	if !has(list, pluginName) || !has(kubeconfig, "next-token") {
		t.Error("what another installation wrote, or an old token, stands")
	}
	if err := i.uninstall(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(i.binDir)
	if err != nil || len(left) != 0 || has(list, pluginName) {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Error("the kubeconfig is left")
	}
}

// A configuration with one plugin is converted to a list of the same name.
func TestInstallWithOnePlugin(t *testing.T) {
	i := newPlayed(t)
	i.write(filepath.Join(i.confDir, "05-one.conf"), `{"cniVersion":"0.3.1","name":"n","type":"bridge"}`)
	i.install()
	if _, err := os.Stat(filepath.Join(i.confDir, "05-one.conf")); err == nil || !has(filepath.Join(i.confDir, "05-one.conflist"), pluginName) {
		t.Error("the configuration of one plugin is not a list now")
	}
}
