package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"navarch.io/navarch/store/kv/kvtest"
)

// An API server uses five seconds of CPU to process the definitions of Istio's kinds and the Gateway API's one after
// the other, and less than two if they are in etcd when it starts. So the stored definitions of the first control plane
// on a machine are cached (.tools/kube-state), by the version of the API server and the text of the definitions, and
// written to the etcd of later ones.

// definitionKinds are the prefixes in etcd, below the API server's prefix, of the objects in the definition files.
var definitionKinds = []string{"apiextensions.k8s.io/customresourcedefinitions/",
	"validatingadmissionpolicies/", "validatingadmissionpolicybindings/"}

// definitionsFile returns the path of the cached definitions of some names.
func (c *ControlPlane) definitionsFile(names []string) (string, error) {
	sum := sha256.New()
	for _, file := range append(c.definitionTexts(names), filepath.Join(c.bin, "kube-apiserver.version")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("no %s: run `make kube-tools` (%w)", filepath.Base(file), err)
		}
		fmt.Fprintf(sum, "%d %s", len(text), text)
	}
	return filepath.Join(c.options.Tools, "kube-state", strings.Join(names, "+")+"-"+hex.EncodeToString(sum.Sum(nil)[:8])), nil
}

// definitionTexts returns the paths of the definition files of some names.
func (c *ControlPlane) definitionTexts(names []string) (files []string) {
	for _, name := range names {
		files = append(files, filepath.Join(c.options.Tools, "crds", name+".yaml"))
	}
	return files
}

// startDefined starts the API server with the definitions of the options.
func (c *ControlPlane) startDefined() error {
	var names []string
	if c.options.Istio {
		names = append(names, "istio")
	}
	if c.options.GatewayAPI {
		names = append(names, "gateway-api")
	}
	if len(names) == 0 {
		return c.startAPIServer()
	}
	put, err := c.putDefinitions(names)
	if err != nil {
		return err
	}
	if err := c.startAPIServer(); err != nil {
		return err
	}
	if put {
		return c.awaitDefinitions()
	}
	if err := c.applyCRDs(names...); err != nil {
		return err
	}
	return c.keepDefinitions(names)
}

// putDefinitions writes cached definitions to etcd, before the API server starts. put is false without cached ones.
func (c *ControlPlane) putDefinitions(names []string) (put bool, err error) {
	file, err := c.definitionsFile(names)
	if err != nil {
		return false, err
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var kept map[string][]byte
	if err := gob.NewDecoder(bytes.NewReader(content)).Decode(&kept); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	all := map[string][]byte{}
	for key, value := range kept {
		all[c.prefix()+key] = value
	}
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	return true, kvtest.PutAll(ctx, c.store, all)
}

// keepDefinitions caches the API server's stored definitions for later control planes.
func (c *ControlPlane) keepDefinitions(names []string) error {
	file, err := c.definitionsFile(names)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	all := map[string][]byte{} // by key below the prefix
	for _, kind := range definitionKinds {
		found, err := kvtest.ReadAll(ctx, c.store, c.prefix()+kind)
		if err != nil {
			return err
		}
		for key, value := range found {
			all[strings.TrimPrefix(key, c.prefix())] = value
		}
	}
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode(all); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(file), "part") // several packages may write it at the same time
	if err != nil {
		return err
	}
	_, err = part.Write(content.Bytes())
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	return err
}

// prefix returns the prefix of all keys of the API server.
func (c *ControlPlane) prefix() string { return cmp.Or(c.options.Prefix, "/registry") + "/" }

// awaitDefinitions waits until the API server lists and describes every defined kind, as kubectl needs it.
func (c *ControlPlane) awaitDefinitions() error {
	client, err := impatient(c.Config())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var wanted []definedKind // definitions do not change, and reading two megabytes of them is slow
	for until := time.Now().Add(ready); ; time.Sleep(50 * time.Millisecond) {
		missing := ""
		if wanted == nil {
			wanted, err = c.definedKinds(client)
		}
		if err == nil {
			missing, err = c.unserved(client, wanted)
		}
		if err == nil && missing == "" {
			return nil
		}
		if time.Now().After(until) || c.api.ended() {
			return errors.Join(fmt.Errorf("kube-apiserver does not serve what is defined: %s", missing), err)
		}
	}
}

// definedKind is a version of a kind in a definition.
type definedKind struct{ gv, resource string }

// definedKinds returns the kinds that must be served.
func (c *ControlPlane) definedKinds(client *http.Client) (all []definedKind, err error) {
	var defined struct {
		Items []struct {
			Spec struct {
				Group    string
				Names    struct{ Plural string }
				Versions []struct {
					Name   string
					Served bool
				}
			}
		}
	}
	err = getJSON(client, "https://"+c.address+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &defined)
	for _, d := range defined.Items {
		for _, v := range d.Spec.Versions {
			if v.Served {
				all = append(all, definedKind{d.Spec.Group + "/" + v.Name, d.Spec.Names.Plural})
			}
		}
	}
	return all, err
}

// unserved returns one of these kinds that is not served yet; empty: all are served.
func (c *ControlPlane) unserved(client *http.Client, wanted []definedKind) (kind string, err error) {
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct{ Resource string }
			}
		}
	}
	if err := getJSON(client, "https://"+c.address+"/apis", &groups); err != nil {
		return "", err
	}
	served := map[definedKind]bool{}
	for _, g := range groups.Items {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				served[definedKind{g.Metadata.Name + "/" + v.Version, r.Resource}] = true
			}
		}
	}
	for _, k := range wanted {
		if !served[k] {
			return k.gv + " " + k.resource, nil
		}
	}
	var described struct{ Paths map[string]any }
	if err := getJSON(client, "https://"+c.address+"/openapi/v3", &described); err != nil {
		return "", err
	}
	for _, k := range wanted {
		if described.Paths["apis/"+k.gv] == nil {
			return "a description of " + k.gv, nil
		}
	}
	return "", nil
}

// getJSON reads a page of the API server, if possible with the kinds of its groups.
func getJSON(client *http.Client, url string, to any) (err error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(to)
}
