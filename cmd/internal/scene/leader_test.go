package scene

import (
	"errors"
	"strings"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// What the leader says beside the sources.

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

func (s *stage) said(made *object.Object, err error) (string, error) {
	if err == nil {
		s.pipeline.do(s.pipeline.ingest.Step(ingest.Objects{{Op: object.Put, ID: made.ID, Object: made}}))
	}
	return "", err
}
