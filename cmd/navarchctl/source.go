package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/source/files"
)

// Pages of Envoy's admin interface: all resources, and the state of the endpoints.
const (
	dumpPage     = "/config_dump?include_eds"
	clustersPage = "/clusters?format=json"
)

// source has the flags that select the origin of a configuration dump: a control plane, an Envoy, or a file.
type source struct {
	target
	envoy, file string
}

func (s *source) bind(cmd *cobra.Command) {
	s.target.bind(cmd)
	f := cmd.PersistentFlags()
	f.StringVar(&s.envoy, "envoy", "", "Address of an Envoy's admin interface, for example 127.0.0.1:15000: what the proxy itself has.")
	f.StringVarP(&s.file, "file", "f", "",
		"A saved config_dump of Envoy or of navarchd, or for endpoints Envoy's /clusters?format=json; - is standard input.")
	cmd.MarkFlagsMutuallyExclusive("envoy", "file")
	for _, flag := range []string{"server", "kubeconfig", "context"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "envoy")
		cmd.MarkFlagsMutuallyExclusive(flag, "file")
	}
}

// read reads the dump of one proxy. The argument types lists the resource types to read. For a control plane, args has
// the name of the proxy. For --envoy and --file, args must be empty. Errors: flags and args do not fit together, or the
// origin cannot be read.
func (s *source) read(ctx context.Context, stdin io.Reader, args []string, types []xds.Type) (*dump.Dump, error) {
	local := s.envoy != "" || s.file != ""
	switch {
	case local && openedOf(ctx) != nil:
		return nil, errors.New("--snapshot excludes --envoy and --file")
	case local && len(args) > 0:
		return nil, errors.New("--envoy and --file select one proxy already: omit NAME")
	case !local && len(args) == 0:
		return nil, errors.New("no proxy is selected: give NAME.NAMESPACE, --envoy ADDR or --file FILE")
	}
	defer s.close()
	switch {
	case s.file != "":
		return s.fromFile(stdin, types)
	case s.envoy != "":
		return s.fromEnvoy(ctx, types)
	}
	return s.fromServer(ctx, args[0], types)
}

// fromServer reads the dump from the replica to which the proxy is connected.
func (s *source) fromServer(ctx context.Context, name string, types []xds.Type) (*dump.Dump, error) {
	proxy, err := s.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	s.asked = proxy
	wanted := ""
	for _, t := range types {
		wanted += t.Noun() + ","
	}
	raw, err := s.configOf(ctx, proxy, wanted)
	if err != nil {
		return nil, err
	}
	d, err := dump.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("navarchd at %s: %w", s.where, err)
	}
	return d, nil
}

// configOf reads the resources of a proxy in the form of Envoy's config_dump. The argument types has the names of types
// with commas between them; empty: all types. Errors are those of ofProxy.
func (t *target) configOf(ctx context.Context, proxy, types string) ([]byte, error) {
	return t.ofProxy(ctx, "config/"+url.PathEscape(proxy), url.Values{"types": {types}},
		"/debug/config_dump?"+url.Values{"proxyID": {proxy}, "types": {types}}.Encode())
}

// fromEnvoy reads the dump from Envoy's admin interface. If types includes endpoints, it also reads /clusters.
func (s *source) fromEnvoy(ctx context.Context, types []xds.Type) (*dump.Dump, error) {
	raw, err := admin(s.envoy).get(ctx, dumpPage)
	if err != nil {
		return nil, err
	}
	d, err := dump.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("Envoy at %s (--envoy): %w", s.envoy, err)
	}
	for _, t := range types {
		if t != xds.Endpoint {
			continue
		}
		if raw, err = admin(s.envoy).get(ctx, clustersPage); err != nil {
			return nil, err
		}
		if err := d.ReadClusters(raw); err != nil {
			return nil, fmt.Errorf("Envoy at %s (--envoy): /clusters: %w", s.envoy, err)
		}
	}
	return d, nil
}

// fromFile reads a dump from a file. If only one type is requested and the file lacks its section, fromFile returns an
// error, because an empty table would look like the proxy's state.
func (s *source) fromFile(stdin io.Reader, types []xds.Type) (*dump.Dump, error) {
	raw, err := contentOf(s.file, stdin)
	if err != nil {
		return nil, err
	}
	d, err := dump.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	for _, t := range types {
		if d.Has[t] || t == xds.Endpoint && d.Hosts != nil || len(types) > 1 {
			continue
		}
		hint := ""
		if t == xds.Endpoint {
			hint = " (of Envoy: " + dumpPage + ")"
		}
		return nil, fmt.Errorf("%s has no section of %ss%s", s.file, t.Noun(), hint)
	}
	return d, nil
}

// contentOf returns the content of a file, or of stdin for "-".
func contentOf(file string, stdin io.Reader) ([]byte, error) {
	if file == files.Stdin {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}
