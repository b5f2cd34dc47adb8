package scene

import (
	"encoding/json"
	"fmt"
	"strings"

	"navarch.io/navarch/push/agentapi"
)

// bootstrap prints the patches that an agent with this request merges into its bootstrap, one line each.
func (s *stage) bootstrap(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	r := a.joined.Set().Bootstrap
	if r == nil {
		return "nothing\n", nil
	}
	patches, err := agentapi.DecodeBootstrap(r.Any())
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range patches {
		text, err := json.Marshal(p.Merge)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s %s\n", p.From, text)
	}
	return out.String(), nil
}
