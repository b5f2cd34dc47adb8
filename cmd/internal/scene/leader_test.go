package scene

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// The leader's outputs in addition to the sources.

func (s *stage) automatic(args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("want NAMESPACE/NAME [HOST=IP,IP]...")
	}
	namespace, name, _ := strings.Cut(args[0], "/")
	hosts := map[string][]string{}
	for _, arg := range args[1:] {
		host, ips, _ := strings.Cut(arg, "=")
		hosts[host] = strings.Split(ips, ",")
	}
	return s.said(normal.NewAutomatic(namespace, name, hosts))
}

func (s *stage) resolved(args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("want NAME [IP]...")
	}
	return s.said(normal.NewResolved(args[0], args[1:]))
}

func (s *stage) keys(args []string) (string, error) {
	id, set, err := keysOf(args, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(s.dir, name)) })
	if err != nil {
		return "", err
	}
	return s.said(normal.NewKeys(id, set, ""))
}

// keysOf reads NAMESPACE SOURCE [TIMEOUT] FILE: which keys the leader has fetched.
func keysOf(args []string, read func(name string) ([]byte, error)) (id object.ID, set string, err error) {
	if len(args) < 3 {
		return id, "", errors.New("want NAMESPACE URI [TIMEOUT] FILE")
	}
	of := normal.KeySource{URI: args[1]}
	if len(args) > 3 {
		if of.Timeout, err = time.ParseDuration(args[2]); err != nil {
			return id, "", err
		}
	}
	raw, err := read(args[len(args)-1])
	return normal.KeysID(args[0], of), string(raw), err
}

func (s *stage) said(made *object.Object, err error) (string, error) {
	if err == nil {
		s.pipeline.do(s.pipeline.ingest.Step(ingest.Objects{{Op: object.Put, ID: made.ID, Object: made}}))
	}
	return "", err
}
