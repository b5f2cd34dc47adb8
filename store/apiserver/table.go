package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// tables is the media type of a response that is a table instead of a list of whole objects
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables).
const tables = "application/json;as=Table;v=v1;g=meta.k8s.io"

// Columns reads a list of objects as a table, and returns the named columns of each object. A name is the title of a
// column, as in kubectl. The objects have the API server's order, and their cells have the order of names. A cell that
// is not a text is formatted by fmt.Sprint. Without objects the result is nil. The parameter path must not have a
// query.
//
// The list comes from the API server's cache, so it may be old. A Node has about a hundred bytes in a table, and twenty
// thousand as an object. If the API server returns an error, the error is a *Status. Other errors mean that path is
// invalid, or that there is no usable response. A usable response is complete, has at most MaxAnswer bytes, is not a
// redirect, and is a table with all columns and cells.
func (c *Client) Columns(ctx context.Context, path string, names ...string) ([][]string, error) {
	answer, err := c.ask(ctx, path+"?includeObject=None&resourceVersion=0", tables) // from the API server's cache
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := bounded(answer.Body, MaxAnswer)
	if err != nil {
		return nil, err
	}
	var table struct {
		Kind              string
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf("the API server's answer is not the JSON that was asked for: %w", err)
	}
	if table.Kind != "Table" {
		return nil, errors.New("the API server's answer is no table")
	}
	at := make([]int, len(names))
	for i, name := range names {
		if at[i] = slices.IndexFunc(table.ColumnDefinitions, func(d struct{ Name string }) bool { return d.Name == name }); at[i] < 0 {
			return nil, fmt.Errorf("the API server's table has no column %s", name)
		}
	}
	var all [][]string
	for _, row := range table.Rows {
		var cells []string
		for _, i := range at {
			if i >= len(row.Cells) {
				return nil, errors.New("the API server's table has a row that is too short")
			}
			cells = append(cells, fmt.Sprint(row.Cells[i]))
		}
		all = append(all, cells)
	}
	return all, nil
}
