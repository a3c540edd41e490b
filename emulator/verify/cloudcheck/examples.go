package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// example is a request of the API's description.
type example struct {
	name string
	request
}

// examples returns every example of a body in the API's description, an OpenAPI file, as a request without a token, and
// each path with addresses and ids in it.
func examples(api, file string) ([]example, error) {
	description, err := openapi3.NewLoader().LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("the API's description %s: %w", file, err)
	}
	var all []example
	paths := description.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		operations := paths[path].Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			if operation := operations[method]; operation.Security == nil || len(*operation.Security) > 0 { // others are not reached from outside
				all = append(all, examplesOf(api, method, path, operation)...)
			}
		}
	}
	return all, nil
}

func examplesOf(api, method, path string, operation *openapi3.Operation) (all []example) {
	at := api + filled(path)
	bodies := bodiesOf(operation)
	if len(bodies) == 0 {
		bodies = map[string][]byte{"": nil}
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		title := strings.TrimSpace(operation.OperationID + " " + name)
		all = append(all, example{title, request{method: method, url: at, body: bodies[name]}})
	}
	return all
}

func bodiesOf(operation *openapi3.Operation) map[string][]byte {
	bodies := make(map[string][]byte)
	if operation.RequestBody == nil || operation.RequestBody.Value == nil {
		return bodies
	}
	media := operation.RequestBody.Value.Content.Get("application/json")
	if media == nil {
		return bodies
	}
	if media.Example != nil {
		bodies["example"] = encoded(media.Example)
	}
	for name, e := range media.Examples {
		if e.Value != nil {
			bodies[name] = encoded(e.Value.Value)
		}
	}
	return bodies
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from YAML
	}
	return text
}

const exampleSubmitter = "eip155:11155111:0x02e4a7d2f3c4b5a697887766554433221100ffee"

// filled puts a value for each parameter of a path.
func filled(path string) string {
	values := map[string]string{
		"submitter": url.PathEscape(exampleSubmitter), "txId": absent, "proposalId": "1", "req_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		"user_id": "7", "user": "7", "address_id": "1", "asset": "USDC", "endpoint": "shop", "id": "1",
	}
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	if strings.HasSuffix(path, "/by-request") {
		path += "?submitter=" + url.QueryEscape(exampleSubmitter) + "&requestId=" + url.QueryEscape("payout:2026-11-22:user-17:batch-3")
	}
	return path
}

// absent is a txId that no transaction has.
const absent = "00000000-0000-7000-8000-000000000000"
