package pullsecret

import (
	"slices"
	"strings"
	"testing"
)

const config = `{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOmh1bnRlcjI="}, "a.example:5000": {"username": "u", "password": "hunter2"},
	"https://b.example/v2/": {"auth": "Yg=="}, "b.example": {"auth": "Yg=="}}, "credHelpers": {"a.example:5000": "evil"}, "credsStore": "evil"}`

func TestRegistries(t *testing.T) {
	got, err := Registries([]byte(config))
	if want := []string{"a.example:5000", "b.example", "index.docker.io"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	for _, c := range []struct{ raw, want string }{
		{`{"auths": {"hunter2": `, "is no JSON"},
		{`{"auths": "hunter2"}`, "is no JSON"},
		{`{}`, "auths is empty"},
		{`{"auths": {"a.example": {"auth": "` + strings.Repeat("hunter2", maxEntry) + `"}}}`, "more than 16384 bytes"},
		{`{"auths": {` + many() + `}}`, "257 registries; 256 at most"},
	} {
		if _, err := Registries([]byte(c.raw)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.80s: %v, want %q", c.raw, err, c.want)
		}
	}
}

func many() string {
	var all []string
	for i := range maxRegistries + 1 {
		all = append(all, `"r`+strings.Repeat("x", i)+`": {}`)
	}
	return strings.Join(all, ",")
}

// The result for one registry has no credentials of others, and no programs to run.
// Promise: security-workloads.md#identity-and-private-keys
func TestFor(t *testing.T) {
	for registry, want := range map[string]string{
		"a.example:5000":  `{"auths":{"a.example:5000":{"username":"u","password":"hunter2"}}}`,
		"b.example":       `{"auths":{"b.example":{"auth":"Yg=="},"https://b.example/v2/":{"auth":"Yg=="}}}`,
		"index.docker.io": `{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOmh1bnRlcjI="}}}`,
		"a.example":       "",
		"":                "",
	} {
		if got := string(For([]byte(config), registry)); got != want {
			t.Errorf("%s: %s, want %s", registry, got, want)
		}
	}
	if got := For([]byte(`{"auths`), "a"); got != nil {
		t.Errorf("of what is no JSON: %s", got)
	}
}

func TestRegistry(t *testing.T) {
	for module, want := range map[string]string{
		"oci://a.example:5000/team/m:1": "a.example:5000", "OCI://ghcr.io/m": "ghcr.io", "oci://localhost:5000/m": "localhost:5000", "oci://team/m:1": dockerHub, "oci://m": dockerHub, "oci://docker.io/team/m": dockerHub,
		"oci://a.example": dockerHub, "https://a.example/m.wasm": "", "file:///m.wasm": "", "oci://a b": "", "": "",
	} {
		if got := Registry(module); got != want {
			t.Errorf("%q: %q, want %q", module, got, want)
		}
	}
}

func FuzzFor(f *testing.F) {
	f.Add([]byte(config), "a.example:5000")
	f.Fuzz(func(t *testing.T, raw []byte, registry string) {
		registries, err := Registries(raw)
		one := For(raw, registry)
		if slices.Contains(registries, registry) != (one != nil) && err == nil {
			t.Errorf("%q has %q, and for %q: %q", raw, registries, registry, one)
		}
		if again, err := Registries(one); one != nil && err == nil && !slices.Equal(again, []string{registry}) {
			t.Errorf("for %q: %q", registry, one)
		}
	})
}
