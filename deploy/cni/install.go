package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/durable"
)

const (
	pluginName     = "navarch-cni"
	kubeconfigName = "ZZZ-navarch-cni-kubeconfig" // no suffix .conf, .conflist or .json, so runtimes ignore it
	// every is the interval of checking the node: another plugin's installation may rewrite the chain, and the token must
	// be renewed.
	every = 5 * time.Second
)

// installer keeps the plugin in the node's plugin chain.
type installer struct {
	log                          *slog.Logger
	binDir, confDir, hostConfDir string
	serviceAccount               string
	exclude                      []string
	node, proc                   string
}

// run installs the plugin, keeps it installed, and repairs Pods that started without it, until ctx ends. The plugin
// stays installed at the end, because otherwise the traffic of later Pods would pass in clear. The error reports that
// the program cannot be copied.
func (i *installer) run(ctx context.Context) error {
	if err := i.copyProgram(); err != nil {
		return err
	}
	r, err := i.newRepair()
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	installed := false
	for {
		err := errors.Join(i.writeKubeconfig(), i.chain())
		switch {
		case err != nil:
			i.log.Error("the plugin cannot be installed, which is tried again", "error", err)
		case !installed:
			i.log.Info("the plugin is in the node's chain")
			installed = true
		}
		if r != nil {
			r.once(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// copyProgram installs this program as the node's plugin, atomically. Errors name the plugin's program.
func (i *installer) copyProgram() error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(own)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := durable.Replace(filepath.Join(i.binDir, pluginName), 0o755, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	}); err != nil {
		return fmt.Errorf("program of the plugin: %w", err)
	}
	return nil
}

// writeKubeconfig writes the kubeconfig by which the plugin reads Pods, with the newest token of the DaemonSet's
// service account. Errors: token or CA cannot be read, or the process is not in a Pod.
func (i *installer) writeKubeconfig() error {
	token, err := os.ReadFile(filepath.Join(i.serviceAccount, "token"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(i.serviceAccount, "ca.crt"))
	if err != nil {
		return err
	}
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no Pod")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": pluginName,
		"contexts": []any{map[string]any{"name": pluginName, "context": map[string]any{"cluster": pluginName, "user": pluginName}}},
		"clusters": []any{map[string]any{"name": pluginName, "cluster": map[string]any{"server": "https://" + host + ":" + port, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": pluginName, "user": map[string]any{"token": strings.TrimSpace(string(token))}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return replace(filepath.Join(i.confDir, kubeconfigName), text, 0o600)
}

// replace writes a file atomically if its content differs.
func replace(path string, text []byte, mode fs.FileMode) error {
	if was, err := os.ReadFile(path); err == nil && string(was) == string(text) {
		return nil
	}
	return durable.Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// entry returns the plugin's entry in a chain.
func (i *installer) entry() map[string]any {
	kubernetes := map[string]any{"kubeconfig": filepath.Join(i.hostConfDir, kubeconfigName)}
	if len(i.exclude) > 0 {
		kubernetes["excludeNamespaces"] = i.exclude
	}
	return map[string]any{"type": pluginName, "kubernetes": kubernetes}
}

// chain puts the plugin at the end of the configuration that runtimes use: the first file of the folder. Errors: there
// is no configuration, or it cannot be parsed or written.
func (i *installer) chain() error {
	name, err := i.configuration()
	if err != nil {
		return err
	}
	path := filepath.Join(i.confDir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	chained, err := insert(text, i.entry())
	if err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	list := path
	// a configuration of one plugin: runtimes also accept a list, in a file with the suffix .conflist
	if filepath.Ext(name) != ".conflist" {
		list = strings.TrimSuffix(path, filepath.Ext(path)) + ".conflist"
	}
	if err := replace(list, chained, 0o644); err != nil {
		return err
	}
	if list != path {
		return os.Remove(path)
	}
	return nil
}

// uninstall first removes the plugin from the chain, then its files. The rules of Pods stay. The error names the
// configuration.
func (i *installer) uninstall() error {
	name, err := i.configuration()
	if err != nil {
		return err
	}
	path := filepath.Join(i.confDir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	without, err := remove(text)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	if err := replace(path, without, 0o644); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(i.confDir, kubeconfigName), filepath.Join(i.binDir, pluginName)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// configuration returns the path of the file that runtimes use: the first by name (libcni, ConfFiles). The error
// reports that there is no such file yet.
func (i *installer) configuration() (string, error) {
	all, err := os.ReadDir(i.confDir)
	if err != nil {
		return "", err
	}
	for _, f := range all {
		if !f.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(f.Name())) {
			return f.Name(), nil
		}
	}
	return "", fmt.Errorf("no configuration of CNI in %s yet", i.confDir)
}

// insert puts an entry at the end of a list of plugins, replacing one of the same type. A configuration of one plugin
// becomes a list. All other fields are unchanged. The error is that of the JSON.
func insert(text []byte, entry map[string]any) ([]byte, error) {
	list, plugins, err := parse(text)
	if err != nil {
		return nil, err
	}
	list["plugins"] = append(others(plugins), entry)
	return json.MarshalIndent(list, "", "  ")
}

// remove removes our entry from a list of plugins. The error is that of the JSON.
func remove(text []byte) ([]byte, error) {
	list, plugins, err := parse(text)
	if err != nil {
		return nil, err
	}
	if list["plugins"] = others(plugins); len(others(plugins)) == len(plugins) {
		return text, nil
	}
	return json.MarshalIndent(list, "", "  ")
}

// others returns the plugins of a list except ours.
func others(plugins []any) []any {
	return slices.DeleteFunc(slices.Clone(plugins), func(p any) bool {
		one, _ := p.(map[string]any)
		return one["type"] == pluginName
	})
}

func parse(text []byte) (list map[string]any, plugins []any, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, err
	}
	if plugins, is := list["plugins"].([]any); is {
		return list, plugins, nil
	}
	if _, is := list["type"].(string); !is {
		return nil, nil, errors.New("neither a plugin nor a list of plugins")
	}
	one := list
	list = map[string]any{"cniVersion": one["cniVersion"], "name": one["name"]}
	return list, []any{one}, nil
}
