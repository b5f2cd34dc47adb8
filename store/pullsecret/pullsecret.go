// Package pullsecret reads credentials of image registries from Secrets of type kubernetes.io/dockerconfigjson
// (https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/).
//
// Owns: nothing; all functions are pure. Reads: its arguments only. Never: returns an error that contains a credential.
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

// Properties of a Secret with credentials of registries.
const (
	Type = "kubernetes.io/dockerconfigjson" // type of the Secret
	Key  = ".dockerconfigjson"              // key of the credentials in its data
)

// Bounds of a Secret: the number of addresses of registries, and the size of the credentials for one address.
const (
	maxRegistries = 256
	maxEntry      = 16 << 10 // bytes
)

// dockerHub is the registry of image references that name no registry.
const dockerHub = "index.docker.io"

// file is Docker's configuration. Other fields are not read. For example, credHelpers and credsStore name programs that
// return credentials, and such programs must not be run.
type file struct {
	Auths map[string]json.RawMessage `json:"auths"`
}

// Registries returns the hosts (with port, if any) for which a configuration has credentials, sorted and without
// duplicates. The argument raw is the configuration, which is the value of Key. Errors: the configuration is invalid,
// has no entry or more than 256 entries, or has an entry of more than 16 KiB. Errors contain no credential.
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

// For returns the configuration with only the entries of one registry, in a deterministic form. The argument registry
// is a host that Registries returns. For returns nil if there are no such entries, or if the configuration is invalid.
// The caller owns the result.
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
		return nil // unreachable: it was JSON before
	}
	return out
}

func parse(raw []byte) (f file, err error) {
	if err := json.Unmarshal(raw, &f); err != nil {
		// The error of encoding/json may quote a value.
		return file{}, errors.New("is no JSON of Docker's configuration: want {\"auths\": {REGISTRY: {...}}}")
	}
	switch n := len(f.Auths); {
	case n == 0:
		return file{}, errors.New("has no credentials: auths is empty")
	case n > maxRegistries:
		return file{}, fmt.Errorf("has credentials of %d registries; %d at most", n, maxRegistries)
	}
	return f, nil
}

// hostOf returns the host, with its port, of an address in a configuration. The address is a host or a URL
// (github.com/docker/cli, ConvertToHostname).
func hostOf(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")
	host, _, _ := strings.Cut(address, "/")
	return host
}

// Registry returns the registry (host and port) of the image in the URL of a Wasm module, oci://REFERENCE. It returns
// an empty text for other URLs. If the first part of the reference is not a host, or is docker.io, the image belongs to
// Docker Hub, and the result is index.docker.io (github.com/google/go-containerregistry, pkg/name).
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
