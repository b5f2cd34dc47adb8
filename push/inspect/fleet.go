package inspect

import (
	"net/http"
	"time"
)

// Commit is one batch that the ingester wrote.
type Commit struct {
	Revision  int64     `json:"revision"`
	Event     time.Time `json:"event"`     // of the oldest change in it, as the ingester was told
	Committed time.Time `json:"committed"` // when etcd had answered
}

func commits(c Config, _ *http.Request) (any, error) {
	if c.Commits == nil {
		return []Commit{}, nil
	}
	return append([]Commit{}, c.Commits()...), nil
}

func fleet(c Config, _ *http.Request) (any, error) {
	if c.Fleet == nil {
		return struct{}{}, nil
	}
	return c.Fleet(), nil
}
