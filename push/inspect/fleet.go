package inspect

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
)

// Commit is one batch that the ingester wrote.
type Commit struct {
	Revision  int64     `json:"revision"`
	Event     time.Time `json:"event"`     // of the oldest change in it, as the ingester was told
	Committed time.Time `json:"committed"` // when etcd had answered
	Puts      int       `json:"puts"`
	Deletes   int       `json:"deletes"`
	// Records are those that were written or deleted; nil: very many.
	Records []model.Key `json:"-"`
}

// commits lists them, or, with ?record=Kind/namespace/name, those that wrote or deleted records of one name, of
// whatever cluster.
func commits(c Config, r *http.Request) (any, error) {
	all := []Commit{}
	if c.Commits == nil {
		return all, nil
	}
	name := r.URL.Query().Get("record")
	if name == "" {
		return append(all, c.Commits()...), nil
	}
	parts := strings.Split(name, "/")
	kind, known := model.ParseKind(parts[0])
	if len(parts) != 3 || !known {
		return nil, httpError{http.StatusBadRequest, fmt.Sprintf("record=%q: want Kind/namespace/name", name)}
	}
	is := func(k model.Key) bool { return k.Kind == kind && k.Namespace == parts[1] && k.Name == parts[2] }
	for _, one := range c.Commits() {
		if slices.ContainsFunc(one.Records, is) {
			all = append(all, one)
		}
	}
	return all, nil
}

// fleet shows the replicas, and with ?owners=1 the owner of each shard.
func fleet(c Config, r *http.Request) (any, error) {
	if c.Fleet == nil {
		return struct{}{}, nil
	}
	owners := false
	if raw := r.URL.Query().Get("owners"); raw != "" {
		var err error
		if owners, err = strconv.ParseBool(raw); err != nil {
			return nil, httpError{http.StatusBadRequest, fmt.Sprintf("owners=%q: want true or false", raw)}
		}
	}
	return c.Fleet(owners), nil
}
