package suggest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// MaxAnswer bounds the bytes that Answers reads from one reader, for all answers together.
const MaxAnswer = 256 << 20

// Answers parses pairs of answers of Envoy's admin interface: /server_info and then /clusters?format=json. For every
// pair it calls the function visit with the node as JSON, and with a Usage without Proxy and Namespace. The function
// may keep both values. Answers decodes one cluster at a time, and stops at the first error. Errors: reading fails, the
// text has another form, is empty, or has more than MaxAnswer bytes, or visit returns an error. Pairs before the error
// were already passed to visit.
func Answers(r io.Reader, visit func(node json.RawMessage, u Usage) error) error {
	return answers(r, MaxAnswer, visit)
}

// answers is like Answers, with the argument limit in place of MaxAnswer.
func answers(r io.Reader, limit int64, visit func(node json.RawMessage, u Usage) error) error {
	limited := &io.LimitedReader{R: r, N: limit + 1}
	in := json.NewDecoder(limited)
	failed := func(what string, err error) error {
		if limited.N <= 0 {
			return fmt.Errorf("the input has more than %d MiB", limit>>20)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	for n := 0; ; n++ {
		var info struct {
			Node   json.RawMessage `json:"node"`
			Uptime string          `json:"uptime_current_epoch"`
		}
		err := in.Decode(&info)
		switch {
		case errors.Is(err, io.EOF) && n > 0 && limited.N > 0:
			return nil
		case err != nil:
			return failed("/server_info", err)
		case info.Node == nil:
			return errors.New("this is no answer of /server_info: it has no node")
		}
		u := Usage{}
		seconds, err := strconv.ParseFloat(strings.TrimSuffix(info.Uptime, "s"), 64)
		if err != nil {
			return fmt.Errorf("/server_info: uptime_current_epoch: %w", err)
		}
		u.Observed = time.Duration(seconds * float64(time.Second))
		if err := u.clusters(in); err != nil {
			return failed("/clusters", err)
		}
		if err := visit(info.Node, u); err != nil {
			return err
		}
	}
}

// clusters reads an answer of /clusters, and adds its clusters to the usage.
func (u *Usage) clusters(in *json.Decoder) error {
	if at, err := in.Token(); err != nil || at != json.Delim('{') {
		return errors.Join(errors.New("it is no JSON object"), err)
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return err
		}
		if key != "cluster_statuses" {
			var other json.RawMessage
			if err := in.Decode(&other); err != nil {
				return err
			}
			continue
		}
		if at, err := in.Token(); err != nil || at != json.Delim('[') {
			return errors.Join(errors.New("cluster_statuses is no list"), err)
		}
		for in.More() {
			var c status
			if err := in.Decode(&c); err != nil {
				return err
			}
			u.add(c)
		}
		if _, err := in.Token(); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

// status contains those fields of a cluster's status that this package reads.
type status struct {
	Name  string `json:"name"`
	Hosts []struct {
		Stats []struct {
			Name  string `json:"name"`
			Value string `json:"value"` // proto JSON of a 64 bit number; absent: 0
		} `json:"stats"`
	} `json:"host_statuses"`
}

// used reports whether an endpoint of the cluster had a connection or a request.
func (c status) used() bool {
	for _, h := range c.Hosts {
		for _, s := range h.Stats {
			if (s.Name == "cx_total" || s.Name == "rq_total") && s.Value != "" && s.Value != "0" {
				return true
			}
		}
	}
	return false
}

// add adds the status of one cluster to the usage.
func (u *Usage) add(c status) {
	switch {
	case strings.HasPrefix(c.Name, "outbound|"):
		u.Clusters++
		if c.used() {
			u.Used = append(u.Used, c.Name)
		}
	case c.Name == "PassthroughCluster" && c.used():
		u.Unknown = true
	}
}
