// Package pullsecret reads credentials of image registries from Secrets of type kubernetes.io/dockerconfigjson
// (https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/).
//
// Owns: nothing; all functions are pure.  Never: an error that shows a credential.
package pullsecret

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// What such a Secret is known by.
const (
	Type = "kubernetes.io/dockerconfigjson" // its type
	Key  = ".dockerconfigjson"              // where its credentials are
)

// The bounds of a Secret. What is sent to proxies is one registry's.
const (
	maxRegistries = 256
	maxEntry      = 16 << 10 // bytes
)

// dockerHub is the registry of references that name none.
const dockerHub = "index.docker.io"

// file is Docker's configuration. What else it may have, such as programs to ask for credentials (credHelpers, credsStore), is not read: nobody is to run them.
type file struct {
	Auths map[string]json.RawMessage `json:"auths"`
}

// Registries are the hosts, each once and sorted, of which a configuration has credentials. An error says that it cannot be read or is too large, or has none.
func Registries(raw []byte) ([]string, error) {
	f, err := parse(raw)
	if err != nil {
		return nil, err
	}
	hosts := map[string]bool{}
	for address, entry := range f.Auths {
		if len(entry) > maxEntry {
			return nil, fmt.Errorf("has more than %d bytes for %.100q", maxEntry, address)
		}
		hosts[hostOf(address)] = true
	}
	return slices.Sorted(maps.Keys(hosts)), nil
}

// For is the configuration with the credentials of one registry alone, in a form that is the same each time; nil: there are none, or it cannot be read.
func For(raw []byte, registry string) []byte {
	f, err := parse(raw)
	if err != nil {
		return nil
	}
	maps.DeleteFunc(f.Auths, func(address string, _ json.RawMessage) bool { return hostOf(address) != registry })
	if len(f.Auths) == 0 {
		return nil
	}
	out, err := json.Marshal(f)
	if err != nil {
		return nil // it was JSON before
	}
	return out
}

func parse(raw []byte) (f file, err error) {
	if err := json.Unmarshal(raw, &f); err != nil {
		return file{}, errors.New("is no JSON of Docker's configuration: want {\"auths\": {REGISTRY: {...}}}") // encoding/json may quote a value
	}
	switch n := len(f.Auths); {
	case n == 0:
		return file{}, errors.New("has no credentials: auths is empty")
	case n > maxRegistries:
		return file{}, fmt.Errorf("has credentials of %d registries; %d at most", n, maxRegistries)
	}
	return f, nil
}

// hostOf is the host, with its port, of the address by which a configuration has credentials: a host, or a URL
// (github.com/docker/cli, ConvertToHostname).
func hostOf(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")
	host, _, _ := strings.Cut(address, "/")
	return host
}

// Registry is the registry, host and port, that a module's URL names an image of; empty: it is no image's. A reference whose first part is no host, or docker.io, is
// Docker Hub's (github.com/google/go-containerregistry, pkg/name).
func Registry(module string) string {
	u, err := url.Parse(module)
	if err != nil || !strings.EqualFold(u.Scheme, "oci") {
		return ""
	}
	if u.Path == "" || u.Host == "docker.io" || !strings.ContainsAny(u.Host, ".:") {
		return dockerHub
	}
	return u.Host
}
