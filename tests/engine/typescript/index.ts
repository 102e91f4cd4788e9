// Stack dev is a cluster of played hosts (test_package.py), stack burst a pool with its last site.
import * as fs from "fs";
import * as pulumi from "@pulumi/pulumi";
import * as tailrack from "@pulumi/tailrack";

const config = JSON.parse(fs.readFileSync("arguments.json", "utf8")) as tailrack.ClusterArgs;
const privateKey = pulumi.secret(fs.readFileSync("key", "utf8"));
const sites = config.sites.map(site => ({...site, hosts: site.hosts?.map(host => ({...host, privateKey}))}));
const tailnet = {...config.tailnet, authKey: pulumi.secret(fs.readFileSync("auth_key", "utf8"))};

function newCluster() {
    const prod = new tailrack.Cluster("prod", {...config, tailnet, sites: sites.slice(0, 2)});
    return {cluster: prod.summary, head_link: prod.headLink, validation: prod.validation};
}

function newPool() {
    const dev = new pulumi.StackReference("organization/user/dev");
    const joined = {cluster: dev.requireOutput("cluster"), headLink: dev.requireOutput("head_link")};
    const burst = new tailrack.Pool("burst", {...joined, tailnet: {authKey: tailnet.authKey}, sites: sites.slice(2)});
    return {cluster: burst.summary, head_link: "", validation: burst.validation};
}

export const {cluster, head_link, validation} = pulumi.getStack() === "dev" ? newCluster() : newPool();
