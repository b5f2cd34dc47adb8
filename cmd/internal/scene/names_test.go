package scene

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/agentapi"
)

// names requests the name table like an agent that answers DNS, and prints it, one line per name.
func (s *stage) names(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	a.joined.Names()
	if err := s.settle(); err != nil {
		return "", err
	}
	r := a.joined.Names().Get("")
	if r == nil {
		return "", fmt.Errorf("%s has no name table", args[0])
	}
	all, err := agentapi.DecodeNames(r.Any())
	if err != nil {
		return "", err
	}
	var lines []string
	for _, n := range all {
		line := short(n.Host)
		for _, address := range n.Addresses {
			line += " " + address.String()
		}
		if n.Registry == agentapi.RegistryKubernetes {
			line += " short " + n.Shortname + " in " + n.Namespace
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
