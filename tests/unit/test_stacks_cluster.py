def test_x(build, lab_config, hosts_config):
    import time
    t=time.time()
    r = build(lab_config)
    print(time.time()-t)
    print(r.names)
    print(r.outputs, r.secret_outputs)
    print(r['a1-join'].inputs['connection'], r['a1-join'].secret_paths, r['a1-join'].in_plain_state)
    print({k:v for k,v in r['a1-node'].inputs.items() if k!='stdin'}, r.header('a1-node'))
    r = build(lab_config, unknown=True); print(r.names, r.outputs)
    r = build(hosts_config); print(r.names, r.outputs)
    assert 0
