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
	made, err := normal.NewAutomatic(namespace, name, hosts)
	if err != nil {
		return "", err
	}
	s.pipeline.do(s.pipeline.ingest.Step(ingest.Objects{{Op: object.Put, ID: made.ID, Object: made}}))
	return "", nil
}
